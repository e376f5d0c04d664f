"""What is known of each drafter: how much of its drafts is accepted, and which lengths were used when.

An arm, as in a bandit's. Costs are kept elsewhere, since drafters share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import add
from typing import NamedTuple

from localspec.core.requests import MAX_DRAFT
from localspec.engine.policy.acceptance import Acceptance
from localspec.engine.policy.costs import FORWARD, Costs
from localspec.engine.policy.shares import Others
from localspec.engine.protocols import Offer

FIRST_TRIES = (4, 0, 1)  # enough costs to draw a line through
LONGER = 2  # times the longest measured draft: as far as a line through costs is believed


class Arm:
    """One drafter's record. `free`: its tokens are known beforehand, and cost nothing to propose."""

    def __init__(self, drafter: str, *, free: bool) -> None:
        self.free = free
        self.priced = FORWARD if free else drafter  # what its rounds cost is kept under
        self.acceptance = Acceptance()
        self.used: dict[int, int] = {}  # k: the last round that drafted so much


class PricedOffer(NamedTuple):
    """An offer with what the next round would bring: tokens and seconds by k. `lengths`: those whose cost is known well
    enough to choose them; up to `longest` they may be explored."""

    offer: Offer
    arm: Arm
    expected: list[float]
    cost: list[float]
    lengths: Sequence[int]
    longest: int

    def fastest(self, beside: float) -> float:
        """Tokens per second, of the length that brings most, with those that others gain in its time."""
        expected, cost = self.expected, self.cost
        return max([(expected[k] + beside) / cost[k] for k in self.lengths])

    def drafting(self, others: Others, costs: Costs) -> list[float]:
        """Seconds that everybody waits for a draft, by its length: shared by those who draft by forwards at once, which
        are computed as one, too."""
        if self.arm.free:
            return [0.0] * len(self.cost)
        by = 1 + others.drafting
        return [seconds / by for seconds in self.drafts(costs)]

    def drafts(self, costs: Costs) -> list[float]:
        """Seconds of a draft by forwards, by its length."""
        return [0.0, *[max(own - bare, 0.0) for own, bare in zip(self.cost[1:], costs.beside(1), strict=False)]]

    def gains(self, drafting: list[float], rate: float) -> list[float]:
        """Tokens that each row brings, less those that others would in the time that it is drafted."""
        gained = pairwise(self.expected[: self.longest + 1])
        return [b - a - rate * (d - c) for (a, b), (c, d) in zip(gained, pairwise(drafting), strict=False)]

    def best(self, rate: float) -> tuple[float, int]:
        """The most tokens above the usual rate, and the length that brings them: a draft ends where a longer one
        gains less than it costs."""
        expected, cost = self.expected, self.cost
        return max([(expected[k] - rate * cost[k], k) for k in self.lengths])


def candidate(offer: Offer, arm: Arm, expected: list[float], costs: Costs) -> PricedOffer:
    """Known tokens may be drafted up to twice as many as were measured. Others cost a forward each: as many as were
    measured, or one more."""
    tried = costs.tried(arm.priced)
    longest = max(tried, default=0)
    longest = min(len(expected) - 1, LONGER * max(longest, 1) if arm.free else longest + 1)
    lengths = range(1, longest + 1) if arm.free else [k for k in {*tried, longest} if k <= longest]
    return PricedOffer(offer, arm, expected, costs.table(arm.priced), lengths, longest)


def beside(one: PricedOffer, others: Others, costs: Costs, dearest: float) -> PricedOffer:
    """The candidate where others have rows in the same forward: its own make that wider, and nothing may cost more than
    `dearest`."""
    cost = list(map(add, costs.beside(others.rows), one.drafting(others, costs)))
    lengths = one.lengths
    if one.arm.free:
        widest = max(LONGER * max(costs.tried(FORWARD), default=1) - others.rows, 1)
        lengths = range(1, min(len(one.expected) - 1, widest) + 1)
    lengths = [k for k in lengths if cost[k] <= dearest]
    return one._replace(cost=cost, lengths=lengths, longest=max(lengths, default=0))


def untried(arm: Arm, most: int, costs: Costs, least: int, others: int = 0) -> Iterator[int]:
    """The lengths to measure first, 0 for plain decoding. Known tokens are a forward's rows like any other: they are
    measured once a forward was as wide as one with them beside `others`, or had more than one row where there are none.
    """
    tried = costs.tried(arm.priced)
    widest = max(tried, default=0)
    for k in FIRST_TRIES:
        measured = widest >= (others + k if others else 1) if arm.free else k in tried
        if k == 0 and least == 0 and not len(costs.plain):
            yield 0
        elif 0 < k <= min(most, MAX_DRAFT) and not measured:
            yield k
