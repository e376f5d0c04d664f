"""Seconds of rounds by drafter and draft length, as measured. Knows no tokens and no clock of its own."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from itertools import pairwise
from math import sqrt

from localspec.core.requests import MAX_DRAFT

TINY = 1e-9
COSTS_KEPT = 31
SCATTER_OVER = 50  # rounds
FEW = 3  # times that do not make a median
CALMER = 2  # times as fast as ever before: the machine was busy until then
MOVED = 0.003  # a smaller change of a cost is not worth a new table
FORWARD = ""  # the drafter of what costs nothing to propose: the round is its forward, whoever proposed
WIDEST = 8 * (MAX_DRAFT + 1)  # rows of a forward, behind which costs are not looked at


class Times:
    """The last times of one kind of round, also in order, so that a median costs no sorting."""

    __slots__ = ("ordered", "recent")

    def __init__(self) -> None:
        self.recent: deque[float] = deque()
        self.ordered: list[float] = []

    def __len__(self) -> int:
        return len(self.ordered)

    def add(self, seconds: float) -> None:
        if len(self.recent) == COSTS_KEPT:
            del self.ordered[bisect_left(self.ordered, self.recent.popleft())]
        self.recent.append(seconds)
        insort(self.ordered, seconds)

    @property
    def median(self) -> float:
        return self.ordered[(len(self.ordered) - 1) // 2]

    @property
    def usual(self) -> float:
        """The median; of a few times the least, since any of them may be a hiccup."""
        return self.ordered[0] if len(self.ordered) <= FEW else self.median


class Costs:
    """Seconds of a round by drafter and k, a step function: each k has its own recent times, and nothing is smoothed
    across k. A round without a draft is k = 0 of every drafter. A forward has k rows more than one, whoever has them.

    Few times count as a little less, by as much as they scatter: else a k that was slow once by chance would not be
    tried again. A time of less than half the least before it is not chance: the machine was busy, and all measured
    times are dropped, of every k.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.plain = Times()
        self.times: dict[str, dict[int, Times]] = {}  # by drafter and k, from 1 on
        self.known: dict[str, dict[int, float]] = {}  # what they come to
        self.tables: dict[str, list[float]] = {}
        self.widths: list[float] = []  # what forwards cost, by all their rows but one
        self.few: set[tuple[str, int]] = set()  # drafter and k of those with few times
        self.scatter = 0.0  # usual distance of a time from its median, as a share of it
        self.compared = 0

    def observe(self, drafter: str, k: int, seconds: float) -> None:
        times = self.times_of(drafter, k)
        if len(times) >= FEW and seconds < times.ordered[0] / CALMER:
            self.forget()
            times = self.times_of(drafter, k)
        if times.ordered:
            self.compare(seconds, times.median)
        times.add(seconds)
        count = len(times.ordered)
        if count <= FEW and k <= MAX_DRAFT:
            (self.few.add if count < FEW else self.few.discard)((drafter, k))
        self.update(drafter, k, max(times.usual * (1 - self.scatter / sqrt(count)), TINY))

    def times_of(self, drafter: str, k: int) -> Times:
        if k == 0:
            return self.plain
        by_k = self.times.setdefault(drafter, {})
        if k not in by_k:
            by_k[k] = Times()
        return by_k[k]

    def compare(self, seconds: float, usual: float) -> None:
        self.compared += 1
        distance = min(abs(seconds / max(usual, TINY) - 1), 1.0)
        self.scatter += (distance - self.scatter) / min(self.compared, SCATTER_OVER)

    def update(self, drafter: str, k: int, cost: float) -> None:
        """Takes a new cost, unless it is the old one but for a trifle; tables are made again when they are needed."""
        known = self.known.setdefault(FORWARD if k == 0 else drafter, {})
        old = known.get(k, 0.0)
        if abs(cost - old) <= MOVED * old:
            return
        known[k] = cost
        if known is self.known.get(FORWARD):
            self.widths = []
        if k == 0:
            self.tables.clear()
        else:
            self.tables.pop(drafter, None)

    def tried(self, drafter: str) -> dict[int, Times]:
        """The lengths, from 1 on, that were measured with this drafter."""
        return self.times.get(drafter, {})

    @property
    def least(self) -> float:
        """The cheapest round, whoever drafted."""
        return min([min(known.values()) for known in self.known.values() if known])

    def table(self, drafter: str) -> list[float]:
        """Costs for k = 0 and on: measured, else on the line through the measured neighbours."""
        table = self.tables.get(drafter)
        if table is None:
            known = dict(self.known.get(drafter, {}))
            plain = self.known.get(FORWARD, {}).get(0)
            if plain is not None:
                known[0] = plain
            table = self.tables[drafter] = lines(known)
        return table

    def beside(self, rows: int) -> list[float]:
        """Forwards with so many rows of others, by the k of one's own."""
        if not self.widths:
            self.widths = by_width(self.known[FORWARD])
        rows = min(rows, WIDEST - MAX_DRAFT - 1)
        return self.widths[rows:]


def lines(known: dict[int, float], count: int = MAX_DRAFT + 1) -> list[float]:
    """The costs of k = 0 to `count` - 1: known, or on the line through the nearest known on each side, or through the
    two nearest on one."""
    points, least, costs = sorted(known.items()), min(known.values()), list[float]()
    if len(points) == 1:
        return [least] * count
    for (a, low), (b, high) in pairwise(points):
        end = count if b == points[-1][0] else min(b, count)
        costs += [max(low + (high - low) * (k - a) / (b - a), least) for k in range(len(costs), end)]
    if b < count:
        costs[b] = high
    return costs


def by_width(known: dict[int, float]) -> list[float]:
    """The costs of forwards; wider than any known one, they rise as they do from the narrowest to the widest."""
    first, last = min(known), max(known)
    slope = max(known[last] - known[first], 0.0) / max(last - first, 1)
    ends = {0: known[first], WIDEST: known[last] + slope * (WIDEST - last)}
    return lines(ends | known, WIDEST)
