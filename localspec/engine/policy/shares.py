"""What one request knows of the others when it chooses, and how rows are shared out. Knows no drafters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import inf
from operator import truediv
from typing import NamedTuple

from localspec.engine.protocols import Company, Forward


class Alone:
    """The company of a request whose rows are computed with no other's."""

    others = 0
    is_reading = False
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
    """The others in the next step: their `rows` and the `tokens` that those bring, as they have chosen or are expected
    to; the rows that they have without drafts; the fewest tokens that one of them gains by a step, of late; how many of
    them draft by forwards."""

    rows: int
    plain: int
    tokens: float
    fewest: float
    drafting: int = 0
    waiting: Sequence[float] = ()  # what each further row would bring to those who choose later

    def joined(self, own: Sequence[float], costs: Sequence[float], usual: float) -> Others:
        """The others with the rows of those who choose later, where all draft what brings most together: the best gains
        first, whoever has them. `own` gains are this request's, `costs` those of a forward by further rows."""
        gains = sorted([*own, *self.waiting], reverse=True)
        totals = list(accumulate(gains, initial=1 + self.tokens))
        rate = max([usual, *map(truediv, totals, costs)])
        above = [total - rate * cost for total, cost in zip(totals, costs, strict=False)]
        most = above.index(max(above))
        least = gains[most - 1] if most else inf
        rows = max(most - sum([gain >= least for gain in own]), 0)
        theirs = sorted(self.waiting, reverse=True)[:rows]
        return self._replace(rows=self.rows + rows, tokens=self.tokens + sum(theirs))


NO_OTHERS = Others(0, 0, 0.0, inf)
