"""The policy that measures: which offer is drafted, and how many of its tokens, so that tokens per second are most.

It maximises expected tokens minus the usual rate times the round's cost (Dinkelbach's method for a ratio), and explores
within a fixed share of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from localspec.core.requests import MAX_DRAFT
from localspec.engine.policy.acceptance import NEGLIGIBLE
from localspec.engine.policy.arms import Arm, Candidate, candidate, untried
from localspec.engine.policy.asking import Asking
from localspec.engine.policy.costs import FORWARD, TINY, Costs
from localspec.engine.policy.exploring import Best, Explorer, Pick
from localspec.engine.policy.hindsight import Hindsight
from localspec.engine.protocols import PLAIN, Choice, Offer, Round


class Rate:
    """Tokens per second, of the last twenty rounds or so, as expected of the best choice in each."""

    DECAY = 0.95

    def __init__(self) -> None:
        self.tokens = self.seconds = 0.0

    def add(self, tokens: float, seconds: float) -> None:
        self.tokens = self.DECAY * self.tokens + tokens
        self.seconds = self.DECAY * self.seconds + seconds

    @property
    def value(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


class Auto:
    """argmax over offers and their lengths, 0 included, of expected tokens above the usual rate.

    Other lengths are explored now and then; none is dropped for a slow round or two. With `least` 1 every round drafts.
    """

    def __init__(self, max_k: int = 8) -> None:
        self.least, self.max_k = 0, max_k
        self.costs = Costs()
        self.arms: dict[str, Arm] = {}
        self.asking = Asking()
        self.hindsight = Hindsight()
        self.rate = Rate()
        self.asked: Sequence[Offer] | None = None  # what was offered for this round; None where nobody was asked
        self.explorer = Explorer(self.costs)

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        self.asked = None
        if most < 1 or not (self.least or self.asking.due()):
            return PLAIN
        self.asked = asked = [offer for offer in offers() if offer.most > 0]
        if not asked:
            self.asking.answered(0.0)
            return PLAIN
        if (first := self.first_try(asked, most)) is not None:
            return first
        return self.decided([self.candidate(offer, most) for offer in asked])

    def arm(self, offer: Offer) -> Arm:
        found = self.arms.get(offer.drafter)
        if found is None:
            found = self.arms[offer.drafter] = Arm(offer.drafter, free=bool(offer.tokens))
        return found

    def limit(self, offer: Offer, most: int) -> int:
        """Known tokens cost nothing to propose, so more of them may pay."""
        return min(most, offer.most, MAX_DRAFT if offer.tokens else self.max_k)

    def candidate(self, offer: Offer, most: int) -> Candidate:
        return candidate(offer, self.arm(offer), self.limit(offer, most), self.costs)

    def first_try(self, asked: Sequence[Offer], most: int) -> Choice | None:
        for offer in asked:
            for k in untried(self.arm(offer), self.limit(offer, most), self.costs, self.least):
                return Choice(k, offer) if k else PLAIN
        return None

    def decided(self, candidates: list[Candidate]) -> Choice:
        """The choice that promises most, or one that is worth exploring."""
        best = self.best(candidates)
        self.asking.answered((best.value - 1) / best.rate + best.plain)
        pick = self.explorer.other(candidates, best, self.least) or best.pick
        if pick.candidate is None:
            return PLAIN
        graft = () if pick.candidate.arm.free else self.graft(candidates, pick.candidate, pick.k, best.rate)
        return Choice(pick.k, pick.candidate.offer, graft)

    def best(self, candidates: list[Candidate]) -> Best:
        """A round is worth its tokens above the rate: the usual one, or what is offered now where that is faster."""
        plain = candidates[0].cost[0]
        rate = max(self.rate.value, *[one.fastest for one in candidates], 1 / plain)
        chosen, value, k = None, -inf if self.least else 1 - rate * plain, 0
        for one in candidates:
            most, length = one.best(rate)
            if most > value:
                chosen, value, k = one, most, length
        if chosen is None:
            self.rate.add(1.0, plain)
        else:
            self.rate.add(chosen.expected[k], chosen.cost[k])
        return Best(Pick(chosen, k), value, rate, plain)

    def graft(self, candidates: list[Candidate], best: Candidate, k: int, rate: float) -> tuple[int, ...]:
        """Looked-up tokens behind the k drafted ones, where they pay if the first k are the same: that two drafters
        agree makes both more trustworthy."""
        ours = best.expected[k] - best.expected[k - 1]
        for one in candidates:
            theirs = one.expected[k] - one.expected[k - 1] if one.arm.free and len(one.expected) > k else 0.0
            if theirs < NEGLIGIBLE:
                continue
            chance = (1 - (1 - ours) * (1 - theirs)) / theirs
            gains = [(chance * one.expected[n] - rate * one.cost[n], n) for n in one.lengths if n >= k]
            if gains and (n := max(gains)[1]) > k:
                return one.offer.tokens[:n]
        return ()

    def observe(self, done: Round) -> None:
        seconds = done.seconds
        self.explorer.passed(seconds)
        self.asking.passed(seconds)
        asked, self.asked = self.asked, None
        if done.ended == "stop":
            self.hindsight.drop()
            return  # a round cut short by a stop says nothing about drafts
        if done.drafted:
            self.drafted(done)
        else:
            self.explorer.plain_used = self.explorer.rounds
            self.costs.observe(FORWARD, 0, done.verify_seconds)
            if asked is not None:
                self.asking.took(done.draft_seconds)
            else:
                self.rate.add(1.0, self.costs.known[FORWARD][0])
        if asked or self.hindsight.followed is not None:
            self.hindsight.observe(asked or (), done.tokens, self.arms)
        if done.ended:
            self.hindsight.drop()

    def drafted(self, done: Round) -> None:
        """A round with a draft, whose tokens behind the offer's own were grafted on them."""
        offer, drafted = done.choice.offer, done.drafted
        if offer is None or drafted > MAX_DRAFT:
            return
        arm, own = self.arm(offer), done.drafters.count(offer.drafter)
        arm.used[own] = self.explorer.rounds
        if arm.free:
            self.costs.observe(FORWARD, drafted, done.verify_seconds)
            return
        arm.acceptance.observe(offer.bucket, 0, min(done.accepted, own), min(done.accepted + 1, own))
        seconds = done.seconds - min(self.asking.cost, done.draft_seconds)
        if own == drafted:
            self.costs.observe(arm.priced, own, seconds)
        else:
            wider = self.costs.table(FORWARD)[own] + seconds - self.costs.table(arm.priced)[own]
            self.costs.observe(FORWARD, drafted, max(wider, TINY))
