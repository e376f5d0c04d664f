"""A trace as text of 80 columns without colours: a paragraph a round, and the sums of each drafter at the end.

Knows the records of a trace and how they are shown; reads no file.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from localspec.core.events import Origin
from localspec.core.sanitize import clean
from localspec.core.trace import Outcome, Proposed, TracedRound, TraceEnd, TraceHead, TraceLine
from localspec.engine.drafters.table import kind_name

WIDTH, INDENT = 80, 8
WORDS: dict[Outcome, str] = {"accepted": "accepted", "rejected": "rejected", "ignored": "not tested"}
ENDS = {"stop": "the answer was complete", "length": "it reached max_tokens, the limit that was set"}
ENDS |= {"context": "the context was full", "cancelled": "it was stopped", "error": "of an error"}


@dataclass(slots=True)
class TraceTotals:
    """The sums over the rounds so far; `by_drafter` counts tokens by drafter and outcome."""

    rounds: int = 0
    drafted_rounds: int = 0
    tokens: int = 0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    by_drafter: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, done: TracedRound) -> None:
        self.rounds += 1
        self.drafted_rounds += bool(done.proposed)
        self.tokens += done.count("accepted") + (done.own is not None)
        self.draft_ms += done.draft_ms
        self.verify_ms += done.verify_ms
        self.by_drafter.update((one.drafter, one.outcome) for one in done.proposed)

    def lines(self) -> list[str]:
        times = f"drafting {self.draft_ms:.1f} ms, verifying {self.verify_ms:.1f} ms"
        head = f"{self.tokens} tokens in {self.rounds} rounds, {self.drafted_rounds} with a draft; {times}"
        named = dict.fromkeys(drafter for drafter, _ in self.by_drafter)
        if not named:
            return ["", head]
        columns = f"{'drafter':<14}{'drafted':>9}{'accepted':>10}{'rejected':>10}{'not tested':>12}{'of tested':>11}"
        return ["", head, "", columns, *map(self.row, named)]

    def row(self, drafter: str) -> str:
        accepted, rejected, ignored = (self.by_drafter[drafter, outcome] for outcome in WORDS)
        tested = accepted + rejected
        share = f"{accepted / tested:.0%}" if tested else "–"
        counts = f"{tested + ignored:>9}{accepted:>10}{rejected:>10}{ignored:>12}{share:>11}"
        return f"{clean(name(drafter)):<14.14}{counts}"


def trace_lines(records: Iterable[TraceLine]) -> Iterator[str]:
    """Lines as the records are read."""
    totals, ended = TraceTotals(), "The trace ends here: the program was killed, or still writes."
    for record in records:
        match record:
            case TraceHead():
                yield from fitted(head(record), 2)
            case TracedRound():
                totals.add(record)
                yield from round_lines(totals.rounds, record)
            case TraceEnd(finish_reason=reason):
                ended = f"It ended because {ENDS[reason]}."
    yield from totals.lines()
    yield from ("", ended)


def head(found: TraceHead) -> str:
    drafter = f"drafted by {found.drafter}, k {found.k}" if found.drafter else "without a drafter"
    asked = ", ".join(f"{name} {value}" for name, value in found.sampling.items())
    return " · ".join(filter(None, [found.model, found.quant, found.device, drafter, asked]))


def round_lines(number: int, done: TracedRound) -> Iterator[str]:
    """One line of figures, and what was proposed below it."""
    if not done.proposed:
        own = quoted(done.own.text) if done.own else ""
        yield from fitted(f"{number:>6}  plain, {done.verify_ms:.1f} ms: {own}", INDENT)
        return
    counts = f"{done.count('accepted')} of {len(done.proposed)} accepted"
    times = f"{done.draft_ms:.1f} + {done.verify_ms:.1f} ms"
    yield from fitted(f"{number:>6}  {drafters(done.proposed)}, {counts}, {times}{source(done)}", INDENT)
    for outcome, group in groupby(done.proposed, key=lambda one: one.outcome):
        yield from fitted(f"{'':{INDENT}}{WORDS[outcome]}: {' '.join(map(shown, group))}", INDENT + 2)
    if done.own is not None:
        verb = {"fix": "instead", "bonus": "then"}.get(done.own.source, "then")
        yield from fitted(f"{'':{INDENT}}{verb}: {quoted(done.own.text)}", INDENT + 2)


def drafters(proposed: Iterable[Proposed]) -> str:
    return " + ".join(name(kind) for kind in dict.fromkeys(one.drafter for one in proposed))


def name(kind: str) -> str:
    return kind_name(kind) or "unnamed"


def source(done: TracedRound) -> str:
    """Names the text that looked-up tokens come from, and the class of the match."""
    return f", class {done.bucket}, from {origin(done.origin)}" if done.origin else ""


def origin(found: Origin) -> str:
    named = f" {quoted(found.name)}" if found.name else ""
    kind = "the conversation" if found.kind == "conversation" else f"the {found.kind}{named}"
    return f"{kind} at token {found.position}"


def shown(one: Proposed) -> str:
    """A token, with its probability to the drafter and to the target where one of them is known."""
    if one.p_target is None and one.p_drafter is None:
        return quoted(one.text)
    return f"{quoted(one.text)} ({percent(one.p_drafter)}/{percent(one.p_target)})"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def quoted(text: str) -> str:
    """Text in quotes on one line, with its spaces and line breaks."""
    return '"' + clean(text).replace("\n", "\\n").replace("\t", "\\t") + '"'


def fitted(line: str, indent: int) -> list[str]:
    """The line in 80 columns, broken at spaces, and a longer word where it must be."""
    return textwrap.wrap(clean(line), WIDTH, subsequent_indent=" " * indent, drop_whitespace=True) or [""]
