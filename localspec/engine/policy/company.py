"""What one request knows of the others when it chooses, and how rows are shared out. Knows no drafters."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from localspec.engine.protocols import Company, Forward


class Alone:
    """The company of a request whose rows are computed with nobody's."""

    others = 0
    last: Forward | None = None


ALONE: Company = Alone()


class Steps:
    """Counts forwards once, however many requests had rows in them."""

    def __init__(self) -> None:
        self.count = 0
        self.last: Forward | None = None

    def is_new(self, last: Forward | None) -> bool:
        """Takes a report on the last forward; True if it is the first."""
        if last is not None and last is self.last:
            return False
        self.count += 1
        self.last = last
        return True


class Others(NamedTuple):
    """The others in the next step: their `rows`, as they have chosen or are expected to; those that they have without
    drafts; the tokens that all of them gain, and the fewest that one of them does."""

    rows: int
    plain: int
    tokens: float
    fewest: float
    waiting: Sequence[float] = ()  # gains of those who choose later

    def joined_by(self, rows: int) -> Others:
        return self._replace(rows=self.rows + rows)


NOBODY = Others(0, 0, 0.0, inf)


def share(own: Sequence[float], others: Sequence[float], costs: Sequence[float], rate: float) -> int:
    """The rows that others draft where all draft what brings most together: the best gains first, whoever has them.
    `costs`: of a forward by the rows that are drafted."""
    best, most, total = -rate * costs[0], 0, 0.0
    gains = sorted([*own, *others], reverse=True)[: len(costs) - 1]
    for rows, gain in enumerate(gains, start=1):
        total += gain
        if total - rate * costs[rows] > best:
            best, most = total - rate * costs[rows], rows
    if not most:
        return 0
    return max(most - sum([gain >= gains[most - 1] for gain in own]), 0)
