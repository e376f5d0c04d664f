"""What is known of each drafter: how much of its drafts is accepted, and which lengths were used when.

An arm, as in a bandit's. Costs are kept elsewhere, since drafters share them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from localspec.core.requests import MAX_DRAFT
from localspec.engine.policy.acceptance import Acceptance
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


@dataclass(slots=True)
class Candidate:
    """An offer with what the next round would bring: tokens and seconds, by k up to `most`, of which `lengths` may be
    drafted."""

    offer: Offer
    arm: Arm
    most: int
    expected: list[float]
    cost: list[float]
    lengths: list[int]

    def best(self, rate: float) -> tuple[float, int]:
        """The most tokens above the usual rate, and the length that brings them: a draft ends where a longer one
        gains less than it costs."""
        expected, cost = self.expected, self.cost
        return max([(expected[k] - rate * cost[k], k) for k in self.lengths])


def candidate(offer: Offer, arm: Arm, most: int, costs: Costs) -> Candidate:
    expected = arm.acceptance.expected(offer.bucket, most)
    return Candidate(offer, arm, most, expected, costs.table(arm.priced), lengths(arm, most, costs))


def lengths(arm: Arm, most: int, costs: Costs) -> list[int]:
    """Of tokens that are known any number up to twice as many as were measured. Else those that were measured, and one
    more: each costs a forward."""
    tried = costs.tried(arm.priced)
    longest = max(tried, default=0)
    if arm.free:
        return list(range(1, min(most, LONGER * max(longest, 1)) + 1))
    return [k for k in sorted({*tried, longest + 1}) if k <= most]


def untried(arm: Arm, most: int, costs: Costs, least: int) -> Iterator[int]:
    """The lengths to measure first, 0 for plain decoding."""
    tried = costs.tried(arm.priced)
    for k in FIRST_TRIES:
        if k == 0 and least == 0 and not len(costs.plain):
            yield 0
        elif 0 < k <= min(most, MAX_DRAFT) and k not in tried and not (arm.free and tried):
            yield k
