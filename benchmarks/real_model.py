"""Speed on a real model: ours with every drafter, beside llama.cpp and transformers on the same file. Prints Markdown.

    .venv/bin/python -m benchmarks.real_model                      SmolLM2, which `make real` fetches
    .venv/bin/python -m benchmarks.real_model ./model.gguf -n 128
    .venv/bin/python -m benchmarks.real_model --prompts benchmarks/texts/second_prompts.json
    .venv/bin/python -m benchmarks.real_model --llama-server /path/to/llama-server

A section of docs/measurements.md: all figures, the kinds of prompts, and where a peer's look-up is ahead of ours. A
peer that is not installed is named. Everybody answers every prompt in turn, greedily; speed is tokens of the whole
answer over its time, prompt included; medians ± median absolute deviation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec

from benchmarks.contenders import LOOKUP, Llama, transformers
from benchmarks.llama_cpp.server import servers
from benchmarks.models import SMOLLM2
from benchmarks.program import Arguments, run, show
from localspec.bench.measure import Contender, interleave, names, open_targets, ours, report
from localspec.bench.progress import Tell, shares
from localspec.bench.prompts import PROMPTS, BenchPrompt
from localspec.bench.report import OURS, PLAIN, BenchReport, Way, lead, median_speed
from localspec.core.errors import UsageError
from localspec.core.events import Loading
from localspec.core.requests import LoadRequest
from localspec.core.sanitize import one_line
from localspec.engine.transformers_faults import keep_offline
from localspec.runtime.open_target import OpenTarget

FORMATS = ("int8", "int4")
DRAFTERS = {PLAIN: "off", LOOKUP: "lookup", "early exit": "early-exit"}  # that need no second model
TOKENS, REPEATS = 64, 2
NOTE = (
    "llama.cpp has the file's own format, and flash attention or not; transformers makes floats of the file's weights;"
    " each with one thread or all, whichever won a trial. Their look-ups, of which k is the most that is drafted, are"
    " those of their Python libraries; llama-server's are those of its --spec-type, by its defaults and its own times."
)
AHEAD = "Ours is ahead of the other look-ups measured, in tok/s and in × own plain, in every kind of prompt."


def measure(
    file: Path,
    *,
    max_tokens: int,
    repeats: int,
    tell: Tell,
    prompts: Sequence[BenchPrompt] = PROMPTS,
    server: Path | None = None,
) -> BenchReport:
    targets, _ = open_targets(LoadRequest(str(file)), FORMATS, tell, compared=True)
    everybody: list[Contender] = [
        ours(opened, name, way, "auto") for opened in targets for name, way in DRAFTERS.items()
    ]
    llama, missing = installed(targets[0], file, tell)
    tell(Loading("trying transformers' threads", 0, 1, "steps"))
    everybody += [*(llama.contenders if llama else ()), *transformers(targets[0])]
    questions = [prompt.text for prompt in prompts]
    with ExitStack() as closing:
        if server:
            everybody += servers(targets[0], file, server, LOOKUP, closing)
        runs = interleave(everybody, max_tokens, repeats, shares(tell, names(everybody)), questions)
    if llama:
        llama.close()
    theirs = [one_line(f"{one.way.name}: {note}") for one in everybody for note in one.notes]
    notes = tuple(dict.fromkeys([*theirs, *missing, NOTE]))
    found = report(targets[0], everybody, runs, max_tokens, repeats, notes)
    return replace(found, kinds=tuple(prompt.kind for prompt in prompts))


def installed(opened: OpenTarget, file: Path, tell: Tell) -> tuple[Llama | None, list[str]]:
    """llama.cpp with this file; where it is not installed, a sentence about that."""
    tell(Loading("trying llama.cpp's attention and threads", 0, 1, "steps"))
    try:
        return Llama(opened, file), []
    except UsageError as fault:
        return None, [one_line(f"{fault.message} {fault.hint}")]


def verdict(found: BenchReport) -> list[str]:
    """Sentences about each kind in which another look-up is as fast as ours, or gains as much over its own plain, with
    the time of both plain steps; or that there is none. Ours is that of the faster format."""
    own = [way for way in found.runs if way.kind == LOOKUP and way.engine == OURS]
    others = [way for way in found.runs if way.kind == LOOKUP and way.engine != OURS]
    if not own or not others:
        return []
    fastest = max(own, key=lambda way: median_speed(found.runs[way]))
    sentences = [
        f"{kind}: {sentence}"
        for kind in dict.fromkeys(found.kinds)
        for other in others
        for sentence in ahead(found.only(kind), fastest, other)
    ]
    return sentences or [AHEAD]


def ahead(found: BenchReport, own: Way, other: Way) -> list[str]:
    """What the other one leads in, or is level with ours."""
    name, sentences = f"{other.name} in {other.quant}", []
    theirs, mine = median_speed(found.runs[other]), median_speed(found.runs[own])
    if theirs >= mine:
        sentences.append(f"{name} writes {theirs:.1f} tok/s, ours {mine:.1f}.")
    their_gain, own_gain = gain(found, other), gain(found, own)
    if their_gain is not None and own_gain is not None and their_gain >= own_gain:
        steps = f"a plain token takes it {plain_ms(found, other):.1f} ms, ours {plain_ms(found, own):.1f}"
        sentences.append(f"{name} is ×{their_gain:.2f} its own plain, ours ×{own_gain:.2f}; {steps}.")
    return sentences


def gain(found: BenchReport, way: Way) -> float | None:
    """How many times as fast as the same engine's plain; None where that failed."""
    return lead(found.runs[way], found.own_plain(way))[0]


def plain_ms(found: BenchReport, way: Way) -> float:
    """Milliseconds that the same engine's plain takes for a token."""
    return 1000 / median_speed(found.own_plain(way) or found.runs[way])


def read_prompts(file: Path) -> tuple[BenchPrompt, ...]:
    """The prompts of a JSON file: a list of objects with a kind and a text."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=tuple[BenchPrompt, ...])
    except (OSError, msgspec.DecodeError) as fault:
        raise UsageError(
            f"'{file}' has no prompts ({fault}).", hint="See benchmarks/texts/second_prompts.json"
        ) from fault


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Arguments("real_model", __doc__)
    parser.add_argument("file", nargs="?", type=Path, help="a GGUF file; default: SmolLM2's")
    parser.add_argument("--prompts", type=Path, metavar="FILE", help="others than the sixteen; JSON")
    parser.add_argument("--llama-server", type=Path, metavar="PATH", help="llama.cpp's server, to measure beside ours")
    parser.add_counts(TOKENS, REPEATS, of="runs of every prompt")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> None:
    given = read_arguments(words)
    keep_offline()
    file, prompts = given.file or SMOLLM2, read_prompts(given.prompts) if given.prompts else PROMPTS
    counts = {"max_tokens": given.max_tokens, "repeats": given.repeats}
    found = show(lambda tell: measure(file, **counts, tell=tell, prompts=prompts, server=given.llama_server), "md")
    print("".join(f"\n{sentence}" for sentence in verdict(found)))


if __name__ == "__main__":
    sys.exit(run(main))
