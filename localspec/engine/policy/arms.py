"""What is known of each drafter: how much of its drafts is accepted, and which lengths were used when.

An arm, as in a bandit's. Costs are kept elsewhere, since drafters share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from localspec.core.requests import MAX_DRAFT
from localspec.engine.policy.acceptance import Acceptance
from localspec.engine.policy.company import Others
from localspec.engine.policy.costs import FORWARD, Costs
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


class Candidate(NamedTuple):
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

    def gains(self, rate: float, costs: Costs) -> list[float]:
        """Tokens that each row brings, without what drafting it costs beyond the row."""
        gains = [b - a for a, b in pairwise(self.expected[: self.longest + 1])]
        if self.arm.free:
            return gains
        drafting = [max(own - bare, 0.0) for own, bare in zip(self.cost, costs.beside(0), strict=False)]
        return [gain - rate * (b - a) for gain, (a, b) in zip(gains, pairwise(drafting), strict=False)]

    def best(self, rate: float) -> tuple[float, int]:
        """The most tokens above the usual rate, and the length that brings them: a draft ends where a longer one
        gains less than it costs."""
        expected, cost = self.expected, self.cost
        return max([(expected[k] - rate * cost[k], k) for k in self.lengths])


def candidate(offer: Offer, arm: Arm, expected: list[float], costs: Costs) -> Candidate:
    """Known tokens may be drafted up to twice as many as were measured. Others cost a forward each: as many as were
    measured, or one more."""
    tried = costs.tried(arm.priced)
    longest = max(tried, default=0)
    longest = min(len(expected) - 1, LONGER * max(longest, 1) if arm.free else longest + 1)
    lengths = range(1, longest + 1) if arm.free else [k for k in {*tried, longest} if k <= longest]
    return Candidate(offer, arm, expected, costs.table(arm.priced), lengths, longest)


def beside(one: Candidate, others: Others, costs: Costs, dearest: float) -> Candidate:
    """The candidate where others have rows in the same forward: its own make that wider, and nothing may cost more than
    `dearest`. What they cost beyond their rows, everybody waits for."""
    forward = costs.beside(others.rows)
    widest, cost, lengths = LONGER * max(costs.tried(FORWARD), default=1) - others.rows, forward, one.lengths
    if one.arm.free:
        lengths = range(1, min(len(one.expected) - 1, max(widest, 1)) + 1)
    else:
        alone = costs.beside(0)
        cost = [wide + max(own - bare, 0.0) for wide, own, bare in zip(forward, one.cost, alone, strict=False)]
    lengths = [k for k in lengths if cost[k] <= dearest]
    return one._replace(cost=cost, lengths=lengths, longest=max(lengths, default=0))


def untried(arm: Arm, most: int, costs: Costs, least: int) -> Iterator[int]:
    """The lengths to measure first, 0 for plain decoding."""
    tried = costs.tried(arm.priced)
    for k in FIRST_TRIES:
        if k == 0 and least == 0 and not len(costs.plain):
            yield 0
        elif 0 < k <= min(most, MAX_DRAFT) and k not in tried and not (arm.free and tried):
            yield k
