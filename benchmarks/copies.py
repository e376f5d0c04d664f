"""Measures look-up on a shape: recorded answers of SmolLM2 are forced on random weights, plain and with `auto`.

Every forward runs; the token that it would have chosen is replaced by the recorded one. Kinds weigh alike. An answer
is then written once more with its own text as another branch. Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean, median
from time import perf_counter

import torch
from torch import Tensor

from benchmarks.program import Arguments, at_least, run
from benchmarks.recorded import REWRITE, Recorded, recorded
from benchmarks.shapes.random_weights import SHAPES, make_decoder, random_tensors
from localspec.bench.machine import describe_machine
from localspec.bench.progress import shares
from localspec.bench.tables import markdown
from localspec.bench.turns import rotated
from localspec.cli.progress import ProgressBar
from localspec.core import processor
from localspec.engine.arch import read_arch
from localspec.engine.decode import decode
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.lookup import LookupDrafter, LookupText
from localspec.engine.policy.steerable import SteerablePolicy
from localspec.engine.protocols import Draft, Drafter
from localspec.engine.samplers import Greedy
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session

CONTEXT = 1024
RETRIES = ("chat", "story", "code")
SEED = 0


class Forced(Greedy):
    """Does all of a greedy sampler's work, then says what was recorded."""

    def __init__(self, answer: Sequence[int], start: int) -> None:
        super().__init__(Sampling(temperature=0.0))
        self.answer, self.start = answer, start

    def accept(self, logits: Tensor, draft: Draft, session: Session) -> tuple[int, int]:
        super().accept(logits, draft, session)
        left = self.answer[len(session.tokens) - self.start :]
        accepted = 0
        for proposed, token in zip(draft.tokens.tolist(), left[:-1], strict=False):
            if proposed != token:
                break
            accepted += 1
        return accepted, left[accepted]


@dataclass(frozen=True, slots=True)
class Task:
    """An answer to be written; `kept`: other branches of its chat, which a look-up may copy from."""

    kind: str
    text: Recorded
    kept: tuple[LookupText, ...] = ()


def tasks() -> list[Task]:
    found = [Task(kind, text) for kind, texts in recorded().items() for text in texts]
    again = [
        Task("retry", text, (LookupText("branch", "", text.answer),)) for kind in RETRIES for text in recorded()[kind]
    ]
    return found + again


class Writer:
    """A drafter with a policy, which goes on learning from answer to answer."""

    def __init__(self, session: Session, drafter: Drafter, mode: str) -> None:
        self.session, self.drafter, self.policy = session, drafter, SteerablePolicy(mode, "auto")  # type: ignore[arg-type]

    def seconds_per_token(self, task: Task) -> float:
        """Writes an answer, without the reading of its prompt."""
        session, answer = self.session, task.text.answer
        session.drafter = self.drafter
        if isinstance(self.drafter, Guarded) and isinstance(look_up := self.drafter.drafter, LookupDrafter):
            look_up.refer(task.kept)
        self.drafter.crop(0)  # what it kept of another answer
        session.begin(Forced(answer, len(task.text.prompt)))
        for _ in session.prefill(task.text.prompt):
            pass
        started = perf_counter()
        written = [token for done in decode(session, self.policy, max_tokens=len(answer)) for token in done.tokens]
        took = perf_counter() - started
        assert tuple(written) == answer, f"{task.kind}: another text"
        return took / len(answer)


def ratios(writers: Sequence[Writer], repeats: int, show: Callable[[float], None]) -> Iterator[tuple[str, float]]:
    """How many times as fast as the first the last one writes each answer: the median of all turns but one."""
    todo = tasks()
    found: list[list[float]] = [[] for _ in todo]
    for turn in range(repeats + 1):
        for index, task in enumerate(todo):
            took = {id(one): one.seconds_per_token(task) for one in rotated(writers, turn + index)}
            found[index].append(took[id(writers[0])] / took[id(writers[-1])])
            show((turn + (index + 1) / len(todo)) / (repeats + 1))
    for task, measured in zip(todo, found, strict=True):
        yield task.kind, median(measured[1:])


def table(found: Sequence[tuple[str, float]], title: str) -> str:
    by_kind: dict[str, list[float]] = {}
    for kind, ratio in found:
        by_kind.setdefault(kind, []).append(ratio)
    means = {kind: geometric_mean(measured) for kind, measured in by_kind.items()}
    prompts = [mean for kind, mean in means.items() if kind not in (REWRITE, "retry")]
    rows = [["kind", "times plain", "each answer"]]
    rows += [[kind, f"{means[kind]:.2f}", ", ".join(f"{one:.2f}" for one in by_kind[kind])] for kind in means]
    rows.append(["geometric mean of the prompt kinds", f"{geometric_mean(prompts):.2f}", ""])
    return f"{title}\n\n{markdown(rows)}"


def measure(name: str, kind: str, repeats: int, show: Callable[[float], None]) -> str:
    shape = replace(SHAPES[name], vocab_size=SHAPES["135m"].vocab_size)  # the recorded ids are SmolLM2's
    cores, torch_threads = processor.physical_cores(), torch.get_num_threads()
    torch.set_num_threads(1)
    decoder = make_decoder(
        read_arch(shape.config(CONTEXT)),
        random_tensors(shape, SEED),
        kind,
        context=CONTEXT,
        threads=cores,
    )
    session = Session(decoder, NoDrafter())
    writers = [Writer(session, NoDrafter(), "off"), Writer(session, Guarded(LookupDrafter()), "auto")]
    found = list(ratios(writers, repeats, show))
    torch.set_num_threads(torch_threads)
    machine = " · ".join(f"{key} {value}" for key, value in describe_machine(cores, "cpu").items())
    return table(found, f"{name}, random weights, {kind}; recorded answers of SmolLM2, forced · {machine}")


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Arguments("copies", __doc__)
    parser.add_argument("--shape", choices=tuple(SHAPES), default="llama-1b", help="what the model is like in size")
    parser.add_argument("--format", choices=("int8", "int4"), default="int8", help="weight format")
    parser.add_argument("-r", "--repeats", type=at_least(1), default=3, metavar="N", help="turns of every answer")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> None:
    given = read_arguments(words)
    with ProgressBar() as bar:
        report = measure(given.shape, given.format, given.repeats, shares(bar.show, given.shape))
    print(report)


if __name__ == "__main__":
    sys.exit(run(main))
