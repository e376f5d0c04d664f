"""How the rounds of an answer went, in one line: a cell for each, as high as the share of its draft that was accepted.

Knows nothing but rounds. Height says what colour says: the highest cell is a whole draft, the lowest none of it, a dot
a round that had no draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean

from textual.content import Content
from textual.widget import Widget

from localspec.core.blocks import column, grouped, per_cell
from localspec.core.events import Step
from localspec.tui.chat.explained import RIBBON
from localspec.tui.markdown.layout import Tall

PLAIN = "·"


def accepted_share(step: Step) -> float | None:
    """The share of the proposals tested in a round that was accepted; None where none was tested."""
    tested = step.accepted + len(step.rejected)
    return step.accepted / tested if tested else None


def cell(rounds: Sequence[Step]) -> str:
    """Rounds that share a cell share their mean."""
    shares = [share for share in map(accepted_share, rounds) if share is not None]
    return column(fmean(shares)) if shares else PLAIN


def tone(cell: str) -> str:
    return {PLAIN: "$foreground-muted", column(0): "$text-error", column(1): "$text-success"}.get(cell, "$text-warning")


def caption(rounds: int, size: int) -> str:
    counted = f"{rounds:,} round{'s' if rounds > 1 else ''}"
    return f" {counted}, {size} a cell" if size > 1 else f" {counted}"


def ribbon(rounds: Sequence[Step], width: int) -> Content:
    """All rounds in `width` cells, however many they are; where a cell has several, the caption says how many."""
    columns = width - len(caption(len(rounds), 1))
    size = per_cell(len(rounds), columns)
    if size > 1:
        size = per_cell(len(rounds), width - len(caption(len(rounds), len(rounds))))
    cells = "".join(map(cell, grouped(rounds, size)))
    runs = ["".join(run) for _, run in groupby(cells)]
    return Content.assemble(*((run, tone(run[0])) for run in runs), (caption(len(rounds), size), "$foreground-muted"))


class Ribbon(Tall, Widget):
    """Follows a list of rounds that grows. Not there until a round has had a draft."""

    def __init__(self, rounds: Sequence[Step]) -> None:
        super().__init__()
        self.rounds = rounds
        self._seen = 0
        self.display = False
        self.tooltip = Content(RIBBON.sentence)

    def on_mount(self) -> None:
        self.follow()

    def follow(self) -> None:
        """Rounds may have been added."""
        if len(self.rounds) > self._seen:
            self.display = self.display or any(step.drafted for step in self.rounds[self._seen :])
            self._seen = len(self.rounds)
            self.refresh()

    def render(self) -> Content:
        return ribbon(self.rounds, self.content_size.width)
