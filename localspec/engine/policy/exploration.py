"""Tries lengths although another promises more: a few measurements may mislead, and speed and acceptance change."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from localspec.engine.policy.arms import PricedOffer
from localspec.engine.policy.costs import FEW, TINY, Costs

SHARE = 0.005  # of the time spent may be lost by exploring
DEAREST = 2  # rounds without a draft: the most that one row of a round costs where nothing else runs
DRAFT_COSTS = 1.1  # rounds without one, at least
FREE_EVERY = 8  # rounds: lengths of known tokens are explored less often, since only their cost is in doubt


class Pick(NamedTuple):
    """k tokens of a candidate; None is plain decoding."""

    candidate: PricedOffer | None
    k: int


class BestPick(NamedTuple):
    """What promises most: `value` is its tokens above `rate`, tokens per second; `plain` what plain decoding costs."""

    pick: Pick
    value: float
    rate: float
    plain: float


class Explorer:
    """Explores within a fixed share of the time, first the length that may lose least and was unused longest."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.allowance = 0.0  # seconds that exploring may still lose
        self.rounds = 0
        self.plain_used = 0

    def passed(self, seconds: float) -> None:
        self.rounds += 1
        self.allowance += SHARE * seconds

    def other(self, candidates: list[PricedOffer], best: BestPick, least: int, *, is_alone: bool) -> Pick | None:
        """What to try instead of the best, if anything. Among others, widths come by themselves."""
        if is_alone and self.costs.few and (pick := self.doubtful(candidates, best, least)) is not None:
            return pick
        return self.affordable(candidates, best, least)

    def doubtful(self, candidates: list[PricedOffer], best: BestPick, least: int) -> Pick | None:
        """Picks the one with fewest times, of lengths that only a few times make slower than the best, and that would
        not be if they cost hardly more than the cheapest round. Else one slow round at the start would exclude a length
        for hundreds of rounds."""
        bar = best.value + DRAFT_COSTS * self.costs.least * best.rate
        few: list[tuple[int, int, Pick]] = []
        count = len(self.costs.plain)
        if not least and best.pick.k and count < FEW and bar < 1:
            few.append((count, 0, Pick(None, 0)))
        for one in candidates:
            chosen = best.pick.k if one is best.pick.candidate else 0
            for k, times in self.costs.tried(one.arm.priced).items():
                if len(times) < FEW and k <= one.longest and bar < one.expected[k] and k != chosen:
                    few.append((len(times), -k, Pick(one, k)))
        return min(few, key=lambda each: each[:2])[2] if few else None

    def affordable(self, candidates: list[PricedOffer], best: BestPick, least: int) -> Pick | None:
        """The length that is most worth exploring, if it may lose so much."""
        measured, rounds, per_token = len(self.costs.plain) > 0, self.rounds, 1 / best.rate
        dearest = DEAREST * best.plain if measured else inf  # dearer was the machine, and would keep k away for ever
        worth, loses, pick = -1.0, 0.0, None
        if not least and best.pick.k:
            loses = max(best.plain + (best.value - 1) * per_token, TINY)
            worth, pick = (rounds - self.plain_used) / loses, Pick(None, 0)
        for one in candidates:
            if one.arm.free and rounds % FREE_EVERY:
                continue
            chosen, used = best.pick.k if one is best.pick.candidate else 0, one.arm.used
            for k in range(1, one.longest + 1):
                if k != chosen:
                    cost = min(one.cost[k], dearest * (k + 1))
                    loss = max(cost + (best.value - one.expected[k]) * per_token, TINY)
                    if (found := (rounds - used.get(k, 0)) / loss) > worth:
                        worth, loses, pick = found, loss, Pick(one, k)
        if pick is None or loses > self.allowance:
            return None
        self.allowance -= loses
        return pick
