"""The records of a trace: one answer's rounds, each with what was proposed and what became of it.

A trace is a TraceHead, a TracedRound for every round, and a TraceEnd unless the program was killed. Knows no file.
"""

from __future__ import annotations

from typing import Literal

from localspec.core.events import DraftLength, Event, FinishReason, Origin, Record, Source

Outcome = Literal["accepted", "rejected", "ignored"]
VERSION = 1


class Proposed(Record, frozen=True):
    """A drafted token: the kind of its drafter, and its probability to both, None where it is not known."""

    id: int
    text: str
    drafter: str
    outcome: Outcome
    p_drafter: float | None = None
    p_target: float | None = None


class Own(Record, frozen=True):
    """The target's own token of a round: "fix" in place of a rejected one, "bonus" after an accepted draft, "plain"
    where nothing was drafted."""

    id: int
    text: str
    source: Source


class TraceHead(Event, frozen=True, tag="trace"):
    """The first line: what answered, and how it was asked. `drafter` is "" where none drafts."""

    version: int
    localspec: str
    model: str
    quant: str
    device: str
    drafter: str
    k: DraftLength
    sampling: dict[str, int | float]


class TracedRound(Event, frozen=True, tag="round"):
    """One round. `own` None: the answer ended inside the draft. `bucket` and `origin` are those of the offer that was
    drafted, or of the look-up's that was grafted on it; None where there was none or it has none."""

    proposed: tuple[Proposed, ...]
    own: Own | None
    draft_ms: float
    verify_ms: float
    bucket: int | None = None
    origin: Origin | None = None

    def count(self, outcome: Outcome) -> int:
        return sum(one.outcome == outcome for one in self.proposed)


class TraceEnd(Event, frozen=True, tag="end"):
    """The last line."""

    finish_reason: FinishReason


TraceLine = TraceHead | TracedRound | TraceEnd
