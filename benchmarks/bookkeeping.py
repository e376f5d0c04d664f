"""Measures what a round costs beside its forward: microseconds from a forward's return to the next one's start.

The forward only waits, and the text that comes has no repeats, so that little is drafted; only rounds without a draft
are counted. Sampling, and what makes a round into text and events, are not part of it, and have rows of their own.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from time import perf_counter_ns

import torch
from tokenizers import Tokenizer
from torch import Tensor

from benchmarks.program import Arguments, at_least, run
from localspec.bench.tables import markdown
from localspec.core.events import Mode
from localspec.core.paths import packaged
from localspec.core.requests import MAX_DRAFT
from localspec.engine.decode import decode
from localspec.engine.drafters.empty import NoDrafter, empty
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.drafters.mixed import Mixed
from localspec.engine.policy.steerable import SteerablePolicy
from localspec.engine.protocols import Choice, Draft, Drafter, ExitStates, Offer, Round
from localspec.engine.samplers import Greedy
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from localspec.runtime.stats import Tally
from localspec.runtime.steps import StepWriter

VOCABULARY = 49_152  # SmolLM2's
FORWARD_MS, ROUNDS = 0.6, 1000
UNCOUNTED = 100  # rounds in which the policy still tries
DRAFTED_TOKEN = 0.3  # of a forward
WRONG = VOCABULARY - 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a session asks of a target's configuration."""

    vocab_size: int
    num_layers: int
    max_context: int


class Waiting:
    """A target whose forward takes so many nanoseconds, and all of whose logits are equal; notes when it ran."""

    def __init__(self, nanoseconds: int, context: int) -> None:
        self.arch = Sizes(VOCABULARY, 1, context)
        self.nanoseconds, self.context, self.length = nanoseconds, context, 0
        self.logits = torch.zeros(MAX_DRAFT + 1, VOCABULARY)
        self.starts: list[int] = []
        self.ends: list[int] = []

    def forward(self, ids: Tensor, exit_states: ExitStates | None = None, *, last_only: bool = False) -> Tensor:  # noqa: ARG002
        self.starts.append(perf_counter_ns())
        wait(self.nanoseconds)
        self.length += len(ids)
        self.ends.append(perf_counter_ns())
        return self.logits[: len(ids)]

    def crop(self, length: int) -> None:
        self.length = min(self.length, length)


def wait(nanoseconds: int) -> None:
    until = perf_counter_ns() + nanoseconds
    while perf_counter_ns() < until:
        pass


class Timed(Greedy):
    """Does all of a greedy sampler's work, notes how long that took, and says the text's next token."""

    def __init__(self, text: Sequence[int]) -> None:
        super().__init__(Sampling(temperature=0.0))
        self.text = text
        self.took: list[int] = []

    def accept(self, logits: Tensor, draft: Draft, session: Session) -> tuple[int, int]:
        started = perf_counter_ns()
        super().accept(logits, draft, session)
        self.took.append(perf_counter_ns() - started)
        return 0, self.text[len(session.tokens)]


class Wrong:
    """Drafts by forwards, and is never right."""

    kind = "model"

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds

    def prefill(self, session: Session) -> None:
        pass

    def offers(self, session: Session, most: int) -> Sequence[Offer]:  # noqa: ARG002
        return (Offer(self.kind, most),)

    def draft(self, session: Session, choice: Choice) -> Draft:
        if not choice.k:
            return empty(session)
        wait(self.nanoseconds * choice.k)
        return Draft(torch.full((choice.k,), WRONG), drafters=(self.kind,) * choice.k)

    def crop(self, length: int) -> None:
        pass


class Asked:
    """Counts how often another drafter is asked for offers."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter, self.count = drafter, 0

    def prefill(self, session: Session) -> None:
        self.drafter.prefill(session)

    def offers(self, session: Session, most: int) -> Sequence[Offer]:
        self.count += 1
        return self.drafter.offers(session, most)

    def draft(self, session: Session, choice: Choice) -> Draft:
        return self.drafter.draft(session, choice)

    def crop(self, length: int) -> None:
        self.drafter.crop(length)


@dataclass(slots=True)
class Times:
    """Microseconds of each kind of work."""

    gaps: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})  # by whether it was asked
    sampling: list[float] = field(default_factory=list)
    text: list[float] = field(default_factory=list)


def measure(drafter: Drafter, mode: Mode, nanoseconds: int, rounds: int) -> Times:
    tokenizer = Tokenizer.from_file(str(packaged("assets/guide/target/tokenizer.json")))
    text = [(7919 * place) % tokenizer.get_vocab_size() for place in range(rounds + UNCOUNTED + 1)]
    asked, target, sampler = Asked(drafter), Waiting(nanoseconds, len(text) + MAX_DRAFT + 1), Timed(text)
    session, policy, writer, tally = (
        Session(target, asked),
        SteerablePolicy(mode, "auto"),
        StepWriter(tokenizer),
        Tally(),
    )
    session.begin(sampler)
    for _ in session.prefill(text[:1]):
        pass
    found, counts, between = Times(), [asked.count], [0]
    done: list[Round] = []
    for one in decode(session, policy, max_tokens=len(text) - 1):
        started = perf_counter_ns()
        tally.add(writer.step(one, len(session.tokens)))
        between.append(perf_counter_ns() - started)
        counts.append(asked.count)
        done.append(one)
    for place in range(UNCOUNTED, len(done) - 1):
        if done[place + 1].draft:
            continue
        beside = sampler.took[place] + between[place + 1]
        gap = target.starts[place + 1] - target.ends[place] - beside
        found.gaps[counts[place + 2] > counts[place + 1]].append(gap / 1000)
        found.sampling.append(sampler.took[place] / 1000)
        found.text.append(between[place + 1] / 1000)
    return found


def report(forward_ms: float, rounds: int) -> str:
    nanoseconds = int(forward_ms * 1e6)
    ways: dict[str, tuple[Callable[[], Drafter], Mode]] = {
        "off": (NoDrafter, "off"),
        "auto, look-up": (lambda: Guarded(LookupDrafter()), "auto"),
        "auto, look-up and one that is never right": (
            lambda: Guarded(Mixed(LookupDrafter(), Wrong(int(DRAFTED_TOKEN * nanoseconds)))),
            "auto",
        ),
    }
    rows = [["a round without a draft", "rounds", "median, µs", "95th, µs"]]
    for name, (make, mode) in ways.items():
        times = measure(make(), mode, nanoseconds, rounds)
        rows += [row(f"{name}{', asked' * asked}", some) for asked, some in times.gaps.items() if some]
    rows += [row("beside it: sampling, greedy", times.sampling), row("beside it: text and statistics", times.text)]
    return f"A forward takes {forward_ms} ms.\n\n{markdown(rows)}"


def row(name: str, microseconds: Sequence[float]) -> list[str]:
    last = quantiles(microseconds, n=20)[-1] if len(microseconds) > 1 else microseconds[0]
    return [name, str(len(microseconds)), f"{median(microseconds):.1f}", f"{last:.1f}"]


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Arguments("bookkeeping", __doc__)
    parser.add_argument("--forward-ms", type=float, default=FORWARD_MS, metavar="MS", help="what a forward takes")
    parser.add_argument("-n", "--rounds", type=at_least(8), default=ROUNDS, metavar="N", help="rounds that are counted")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> None:
    given = read_arguments(words)
    print(report(given.forward_ms, given.rounds))


if __name__ == "__main__":
    sys.exit(run(main))
