"""Measures many answers at once: tokens per second of 1 to 8 streams together, beside llama-server and transformers.

    .venv/bin/python -m benchmarks.batch --llama-server /path/to/llama-server

Prompts are different, of different lengths, each above 512 tokens, and share no beginning. Speed is that of all streams
together while all of them write; first tokens are those of eight equal prompts at once, and of one prompt beside seven
streams. Everybody has the same file and both cores; turns are interleaved, medians. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isnan, nan
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter, sleep
from typing import Any  # Any: JSON, and transformers is untyped
from urllib.request import Request, urlopen

from benchmarks.llama_cpp.gguf_file import write_gguf
from benchmarks.models import SMOLLM2
from benchmarks.program import Arguments, at_least, run
from benchmarks.server import PATIENCE, served
from benchmarks.shapes.random_weights import SHAPES, random_tensors
from localspec.bench.machine import describe_machine
from localspec.bench.progress import shares
from localspec.bench.tables import markdown
from localspec.bench.turns import rotated
from localspec.cli.progress import ProgressBar
from localspec.core import processor
from localspec.core.errors import UsageError, first_line
from localspec.engine.arch import read_arch

COUNTS = (1, 2, 4, 8)
WORDS = 450  # of a prompt at least: more than 512 tokens
CONTEXT = 2048  # of each stream
LEAST_SECONDS = 0.5  # of writing together, for a speed
LONG = "Explain every sentence of it at length, one after the other, with an example for each."
SHORT = 32  # tokens of answers that are compared
PORTS = {"localspec": 18533, "llama-server": 18534}


@dataclass
class Heard:
    """One stream: when it was asked for, when how many tokens came, and the text."""

    asked: float = 0.0
    text: str = ""
    came: list[tuple[float, int]] = field(default_factory=list)

    @property
    def first(self) -> float:
        return self.came[0][0] - self.asked

    def longest_wait(self, start: float, end: float) -> float:
        """Most seconds between two tokens of it, of the waits that fall into this time at least in part."""
        waits = pairwise(at for at, count in self.came if count)
        return max((after - before for before, after in waits if after >= start and before <= end), default=nan)

    def between(self, start: float, end: float) -> int:
        return sum(count for at, count in self.came if start < at <= end)


Ask = Callable[[str, int, Heard], None]


@dataclass(frozen=True, slots=True)
class Contender:
    """A server or library that answers: `ask` streams an answer of so many tokens, or `whole` writes all at once."""

    name: str
    ask: Ask | None = None
    whole: Callable[[Sequence[str], int], float] | None = None


def numbered_prompts(count: int, turn: int) -> list[str]:
    """Prompts that nothing has met, from the words of the technical text, whose answers are long."""
    words = re.findall(r"\S+", Path(__file__).with_name("texts").joinpath("technical.txt").read_text(encoding="utf-8"))
    found = []
    for index in range(count):
        start, length = (turn * 977 + index * 131) % 1000, WORDS + 37 * index
        body = " ".join((words * (1 + (start + length) // len(words)))[start : start + length])
        found.append(f"{turn * 100 + index}. Read this: {body}\n\n{LONG}")
    return found


def streaming(url: str, more: dict[str, Any]) -> Ask:
    """Asks an OpenAI-like server; a chunk has one token, or as many as it says."""

    def ask(prompt: str, tokens: int, heard: Heard) -> None:
        body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0, **more}
        heard.asked = perf_counter()
        sent, how = json.dumps({**body, "stream": True}).encode(), {"Content-Type": "application/json"}
        with urlopen(Request(f"{url}/v1/chat/completions", sent, how), timeout=PATIENCE) as got:
            for line in got:
                if line.startswith(b"data: {"):
                    chunk = json.loads(line[6:])
                    heard.came.append((perf_counter(), tokens_of(chunk)))
                    heard.text += text_of(chunk)
        heard.came = [(at, count) for at, count in heard.came if count]

    return ask


def text_of(chunk: dict[str, Any]) -> str:
    return (chunk["choices"][0]["delta"].get("content") or "") if chunk["choices"] else ""


def same_as_alone(ask: Ask, prompts: Sequence[str], tokens: int) -> int:
    """How many answers of those at once are the text that each has alone."""
    at_once = together(ask, prompts, tokens)
    alone = [together(ask, [prompt], tokens)[0] for prompt in prompts]
    return sum(one.text == other.text for one, other in zip(at_once, alone, strict=True))


def tokens_of(chunk: dict[str, Any]) -> int:
    if not chunk["choices"]:
        return 0
    ours = chunk["choices"][0].get("localspec") or chunk["choices"][0]["delta"].get("localspec")
    return len(ours["tokens"]) if ours else int(bool(chunk["choices"][0]["delta"].get("content")))


def together(ask: Ask, prompts: Sequence[str], tokens: int) -> list[Heard]:
    """All prompts at once, each in a thread of its own."""
    heard = [Heard() for _ in prompts]
    threads = [Thread(target=ask, args=(prompt, tokens, one)) for prompt, one in zip(prompts, heard, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return heard


def speed(heard: Sequence[Heard]) -> float:
    """Tokens per second of all streams while all of them write; no number where that was no time to speak of."""
    start, end = max(one.came[0][0] for one in heard), min(one.came[-1][0] for one in heard)
    return sum(one.between(start, end) for one in heard) / (end - start) if end - start > LEAST_SECONDS else nan


def one_beside_seven(ask: Ask, prompts: Sequence[str], tokens: int) -> tuple[float, float]:
    """How many times longer than alone the first token takes beside seven that write, and the seconds that one of these
    waits for its next token meanwhile."""
    (alone,) = together(ask, prompts[:1], 1)
    late, others = Heard(), [Heard() for _ in prompts[2:]]
    threads = [Thread(target=ask, args=(*both[:1], tokens, both[1])) for both in zip(prompts[2:], others, strict=True)]
    for thread in threads:
        thread.start()
    while not all(any(count for _, count in one.came) for one in others):
        sleep(0.01)
    ask(prompts[1], 1, late)
    for thread in threads:
        thread.join()
    waits = [one.longest_wait(late.asked, late.came[0][0]) for one in others]
    return late.first / alone.first, max((wait for wait in waits if not isnan(wait)), default=nan)


class Transformers:
    """The file in transformers, as float32. Speeds are those of the tokens behind the first."""

    def __init__(self, file: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(processor.physical_cores())
        kind: Any = AutoTokenizer
        self.tokenizer = kind.from_pretrained(file.parent, gguf_file=file.name, padding_side="left")
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        loading: Any = AutoModelForCausalLM
        self.model = loading.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()

    def batched(self, prompts: Sequence[str], tokens: int) -> float:
        """One padded batch through `generate`."""
        given = self.tokenizer(self.texts(prompts), return_tensors="pt", padding=True)

        def generate(count: int) -> None:
            self.model.generate(**given, do_sample=False, max_new_tokens=count, min_new_tokens=count)

        return self.speed(generate, len(prompts), tokens)

    def continuous(self, prompts: Sequence[str], tokens: int) -> float:
        """Continuous batching: `generate_batch`."""
        from transformers import GenerationConfig

        given, pad = self.tokenizer(self.texts(prompts))["input_ids"], self.tokenizer.pad_token_id

        def generate(count: int) -> None:
            how = GenerationConfig(max_new_tokens=count, do_sample=False, eos_token_id=-1, pad_token_id=pad)
            done = self.model.generate_batch(given, generation_config=how, progress_bar=False)
            if len(done) != len(given):  # its own thread has failed, and only logged it
                raise UsageError(f"It answered {len(done)} of {len(given)}.")

        return self.speed(generate, len(prompts), tokens)

    def why_not_continuous(self) -> str:
        """Why continuous batching does not run here; nothing where it does."""
        try:
            self.continuous(["Hello"], 2)
        except Exception as fault:  # it was made for GPUs, and may lack anything
            return first_line(fault)
        return ""

    def texts(self, prompts: Sequence[str]) -> list[str]:
        chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
        return [self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in chats]

    def speed(self, generate: Callable[[int], None], streams: int, tokens: int) -> float:
        seconds = []
        for count in (1, tokens):
            started = perf_counter()
            generate(count)
            seconds.append(perf_counter() - started)
        return streams * (tokens - 1) / max(seconds[1] - seconds[0], seconds[1] / tokens)  # the second is a bound


def written(folder: Path, name: str, kind: str) -> Path:
    """A GGUF file of random weights, with SmolLM2's tokenizer, in a format that llama.cpp computes like ours."""
    file, shape = folder / f"{name}.gguf", replace(SHAPES[name], vocab_size=SHAPES["135m"].vocab_size)
    arch = read_arch(shape.config(CONTEXT))
    write_gguf(file, arch, random_tensors(shape, 0), "Q8_0" if kind == "int8" else "Q4_0", SMOLLM2)
    return file


def contenders(file: Path, kind: str, llama: Path | None, transformers: bool, closing: ExitStack) -> list[Contender]:
    url, cores = f"http://127.0.0.1:{PORTS['localspec']}", str(processor.physical_cores())
    most = str(max(COUNTS))
    command = [sys.executable, "-m", "localspec", "serve", str(file), "--port", str(PORTS["localspec"])]
    closing.enter_context(served([*command, "--quant", kind, "--parallel", most, "--ctx", str(CONTEXT)], url))
    ours = {spec: streaming(url, {"localspec": {"spec": spec, "tokens": True}}) for spec in ("auto", "off")}
    found = [Contender("localspec, auto", ours["auto"]), Contender("localspec, no drafts", ours["off"])]
    if llama is not None:
        url = f"http://127.0.0.1:{PORTS['llama-server']}"
        command = [str(llama), "-m", str(file), "--port", str(PORTS["llama-server"]), "-np", most, "-t", cores]
        closing.enter_context(served([*command, "-c", str(CONTEXT * max(COUNTS))], url))
        found.append(Contender("llama-server", streaming(url, {"cache_prompt": False})))
    if transformers:
        theirs = Transformers(file)
        found.append(Contender("transformers, batched generate, float32", whole=theirs.batched))
        if why := theirs.why_not_continuous():
            print(f"transformers' continuous batching does not run here: {why}", file=sys.stderr)
        else:
            found.append(Contender("transformers, continuous batching, float32", whole=theirs.continuous))
    return found


def measure(everybody: Sequence[Contender], tokens: int, repeats: int, show: Callable[[float], None]) -> str:
    speeds: dict[tuple[str, int], list[float]] = {}
    equal: dict[str, list[float]] = {}
    late: dict[str, list[float]] = {}
    waits: dict[str, list[float]] = {}
    same: dict[str, int] = {}
    for turn in range(repeats):
        for step, count in enumerate(COUNTS):
            prompts = numbered_prompts(count, 10 * turn + step)
            for one in rotated(everybody, turn + step):
                found = one.whole(prompts, tokens) if one.whole else None
                if one.ask is not None:
                    found = speed(together(one.ask, prompts, tokens))
                speeds.setdefault((one.name, count), []).append(found or nan)
            show((turn + (step + 1) / (len(COUNTS) + 1)) / repeats)
        for one in everybody:
            if one.ask is not None:
                if turn == 0:
                    same[one.name] = same_as_alone(one.ask, numbered_prompts(max(COUNTS), 90), SHORT)
                alike = [numbered_prompts(1, 50 + turn)[0]] * max(COUNTS)
                firsts = [heard.first for heard in together(one.ask, alike, 2)]
                equal.setdefault(one.name, []).append(max(firsts) / mean(firsts))
                times, wait = one_beside_seven(one.ask, numbered_prompts(9, 70 + turn), 2 * tokens)
                late.setdefault(one.name, []).append(times)
                waits.setdefault(one.name, []).append(wait)
        show((turn + 1) / repeats)
    rows = [["tokens per second of all streams", *(str(count) for count in COUNTS), f"{COUNTS[-1]} over 1"]]
    for one in everybody:
        medians = [usual(speeds[one.name, count]) for count in COUNTS]
        rows.append([one.name, *(shown(value, 1) for value in medians), shown(medians[-1] / medians[0], 2)])
    first_tokens = [["first token", "last of eight equal prompts over their mean", "beside seven streams over alone"]]
    first_tokens[0].append("longest wait of the seven meanwhile, ms")
    first_tokens[0].append("of eight different answers, those that are the text alone")
    for name, ratios in equal.items():
        figures = shown(median(ratios), 2), shown(usual(late[name]), 2), shown(1000 * usual(waits[name]), 0)
        first_tokens.append([name, *figures, str(same[name])])
    return f"{markdown(rows)}\n\n{markdown(first_tokens)}"


def usual(speeds: Sequence[float]) -> float:
    """The median of the speeds that were measured."""
    known = [speed for speed in speeds if not isnan(speed)]
    return median(known) if known else nan


def shown(value: float, digits: int) -> str:
    return "–" if isnan(value) else f"{value:.{digits}f}"


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Arguments("batch", __doc__)
    parser.add_argument("model", nargs="?", type=Path, default=SMOLLM2, help="a GGUF file")
    parser.add_argument("--shape", choices=tuple(SHAPES), help="random weights of this shape instead of a model")
    parser.add_argument("--format", choices=("int8", "int4"), default="int8", help="our weight format")
    parser.add_argument("--llama-server", type=Path, metavar="PATH", help="llama.cpp's server, to measure beside ours")
    parser.add_argument("--transformers", action="store_true", help="measure transformers beside ours")
    parser.add_argument("-n", "--max-tokens", type=at_least(8), default=160, metavar="N", help="tokens per answer")
    parser.add_argument("-r", "--repeats", type=at_least(1), default=3, metavar="N", help="turns")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> None:
    given = read_arguments(words)
    with ExitStack() as closing, ProgressBar() as bar:
        folder = Path(closing.enter_context(TemporaryDirectory(prefix="localspec-")))
        file = written(folder, given.shape, given.format) if given.shape else Path(given.model)
        everybody = contenders(file, given.format, given.llama_server, given.transformers, closing)
        report = measure(everybody, given.max_tokens, given.repeats, shares(bar.show, "answers"))
    machine = " · ".join(f"{key} {value}" for key, value in describe_machine(processor.physical_cores(), "cpu").items())
    print(f"{file.name}, {given.format}; {given.max_tokens} tokens, {given.repeats} turns · {machine}\n\n{report}")


if __name__ == "__main__":
    sys.exit(run(main))
