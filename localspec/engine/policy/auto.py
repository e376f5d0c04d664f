"""The policy that measures: which offer is drafted, and how many of its tokens, so that tokens per second are most.

It maximises expected tokens minus the usual rate times the round's cost (Dinkelbach's method for a ratio), and explores
within a fixed share of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf
from operator import add

from localspec.core.requests import MAX_DRAFT
from localspec.engine.policy.acceptance import NEGLIGIBLE
from localspec.engine.policy.agreement import agree
from localspec.engine.policy.arms import Arm, PricedOffer, beside, candidate, untried
from localspec.engine.policy.costs import FORWARD, TINY
from localspec.engine.policy.exploration import BestPick, Pick
from localspec.engine.policy.hindsight import Hindsight
from localspec.engine.policy.offers import AskingRate
from localspec.engine.policy.shared import Member, Shared
from localspec.engine.policy.shares import ALONE, NO_OTHERS
from localspec.engine.protocols import PLAIN, Choice, Company, Forward, Offer, Round

FAIR = 2  # times as long as without any draft: the most that a step of several takes, for each token that the one who
# gains fewest gains


class Auto:
    """argmax over offers and their lengths, 0 included, of expected tokens above the usual rate.

    Other lengths are explored now and then; none is dropped for a slow round or two. With `least` 1 every round drafts.
    """

    def __init__(self, max_k: int = 8, shared: Shared | None = None, company: Company = ALONE) -> None:
        self.least, self.max_k = 0, max_k
        self.shared, self.company, self.member = shared or Shared(), company, Member()
        self.shared.members.append(self.member)
        self.costs, self.rate, self.explorer = self.shared.costs, self.shared.rate, self.shared.explorer
        self.others = NO_OTHERS
        self.is_first = True  # to report on the last step, and to choose for the next
        self.arms: dict[str, Arm] = {}
        self.asking = AskingRate()
        self.hindsight = Hindsight()
        self.asked: Sequence[Offer] | None = None  # what was offered for this round; None where no drafter was asked

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        self.asked = None
        self.others = self.shared.others(self.member, rows) if (rows := self.company.others) else NO_OTHERS
        choice = self.wanted(most, offers)
        self.member.rows = 1 + choice.most
        self.member.is_drafting = choice.offer is not None and not choice.offer.tokens
        return choice

    def wanted(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        may_draft = self.least or (self.asking.due() and not self.company.is_reading)
        if most < 1 or not may_draft:
            return self.plain()
        self.asked = asked = [offer for offer in offers() if offer.most > 0]
        if not asked:
            self.asking.answered(0.0)
            return self.plain()
        if (first := self.first_try(asked, most)) is not None:
            return first
        candidates = [self.candidate(offer, most) for offer in asked]
        if self.others is not NO_OTHERS:
            if len(candidates) == 1 and not candidates[0].arm.free and not self.least:
                return self.agreed(candidates[0])
            candidates = self.beside(candidates)
        if not candidates:
            return self.plain()
        return self.decided(candidates)

    def plain(self) -> Choice:
        self.member.gains = ()
        self.member.promise(1.0)
        return PLAIN

    def arm(self, offer: Offer) -> Arm:
        found = self.arms.get(offer.drafter)
        if found is None:
            found = self.arms[offer.drafter] = Arm(offer.drafter, free=bool(offer.tokens))
        return found

    def limit(self, offer: Offer, most: int) -> int:
        """Known tokens cost nothing to propose, so more of them may pay."""
        return min(most, offer.most, MAX_DRAFT if offer.tokens else self.max_k)

    def candidate(self, offer: Offer, most: int) -> PricedOffer:
        arm = self.arm(offer)
        return candidate(offer, arm, arm.acceptance.expected(offer.bucket, self.limit(offer, most)), self.costs)

    def beside(self, candidates: Sequence[PricedOffer]) -> list[PricedOffer]:
        """Returns the candidates that may be drafted beside what others are expected to draft in the same step."""
        costs, others = self.costs, self.others
        usual = self.rate.value
        self.member.rises = ()
        self.member.gains = gains = max([one.gains(one.drafting(others, costs), usual) for one in candidates], key=sum)
        dearest = inf if self.least else FAIR * others.fewest * costs.beside(others.plain)[0]
        fair = [cost for cost in costs.beside(others.rows) if cost <= dearest]
        if others.waiting and fair:
            self.others = others = others.joined(gains, fair, usual)
        found = [beside(one, others, costs, dearest) for one in candidates]
        return [one for one in found if one.lengths]

    def agreed(self, one: PricedOffer) -> Choice:
        """A draft by forwards beside others, as whoever chooses first in a step reckoned it for all."""
        others, costs, shared, drafts = self.others, self.costs, self.shared, one.drafts(self.costs)
        self.member.gains = ()
        self.member.rises = rises = [b - a for a, b in pairwise(one.expected[: one.longest + 1])]
        if self.is_first or shared.agreed is None:
            dearest = FAIR * others.fewest * costs.beside(others.plain)[0]
            everyone, widths = [rises, *shared.rises(self.member)], costs.beside(others.rows)
            found = agree(everyone, widths, drafts[: one.longest + 1], tokens=1 + others.tokens, most=dearest)
            shared.agreed = found
            self.rate.add(found.tokens, found.seconds)
        agreed = shared.agreed
        k = max([length for length in one.lengths if length <= agreed.length(rises)], default=0)
        beside = costs.beside(max(others.rows, others.plain + agreed.rows - k))
        cost = list(map(add, beside, drafts))
        best = BestPick(Pick(one if k else None, k), one.expected[k] - agreed.rate * cost[k], agreed.rate, cost[0])
        self.member.promise(one.expected[k])
        self.asking.answered((best.value - 1) / best.rate + best.plain)
        pick = self.explorer.other([one._replace(cost=cost)], best, self.least, is_alone=False) or best.pick
        return PLAIN if pick.candidate is None else Choice(pick.k, one.offer)

    def first_try(self, asked: Sequence[Offer], most: int) -> Choice | None:
        least = max(self.least, self.others.rows)  # among others, a forward without drafts is none of one row
        widened = self.others.rows if self.is_first and not self.company.is_reading else 0  # by one of them is enough
        for offer in asked:
            for k in untried(self.arm(offer), self.limit(offer, most), self.costs, least, widened):
                return Choice(k, offer) if k and (FORWARD in self.costs.known or not self.others.rows) else PLAIN
        return None

    def decided(self, candidates: list[PricedOffer]) -> Choice:
        """The choice that promises most, or one that is worth exploring."""
        best = self.best(candidates)
        self.asking.answered((best.value - 1) / best.rate + best.plain)
        pick = self.explorer.other(candidates, best, self.least, is_alone=self.others is NO_OTHERS) or best.pick
        if pick.candidate is None:
            return PLAIN
        graft = None if pick.candidate.arm.free else self.graft(candidates, pick.candidate, pick.k, best.rate)
        return Choice(pick.k, pick.candidate.offer, graft)

    def best(self, candidates: list[PricedOffer]) -> BestPick:
        """A round is worth its tokens above the rate: the usual one, or what is offered now where that is faster."""
        plain, beside = candidates[0].cost[0], self.others.tokens
        rate = max(self.rate.value, *[one.fastest(beside) for one in candidates], (1 + beside) / plain)
        chosen, value, k = None, -inf if self.least else 1 - rate * plain, 0
        for one in candidates:
            most, length = one.best(rate)
            if most > value:
                chosen, value, k = one, most, length
        tokens, seconds = (1.0, plain) if chosen is None else (chosen.expected[k], chosen.cost[k])
        if self.is_first:
            self.rate.add(tokens + beside, seconds)
        self.member.promise(tokens)
        return BestPick(Pick(chosen, k), value, rate, plain)

    def graft(self, candidates: list[PricedOffer], best: PricedOffer, k: int, rate: float) -> Offer | None:
        """Looked-up tokens after the k drafted ones, where they pay if the first k are the same: that two drafters
        agree makes both more trustworthy."""
        ours = best.expected[k] - best.expected[k - 1]
        for one in candidates:
            theirs = one.expected[k] - one.expected[k - 1] if one.arm.free and len(one.expected) > k else 0.0
            if theirs < NEGLIGIBLE:
                continue
            chance = (1 - (1 - ours) * (1 - theirs)) / theirs
            gains = [(chance * one.expected[n] - rate * one.cost[n], n) for n in one.lengths if n >= k]
            if gains and (n := max(gains)[1]) > k:
                return one.offer.first(n)
        return None

    def observe(self, done: Round) -> None:
        seconds, last = done.seconds, self.company.last
        self.is_first = self.shared.is_first(self.member, last)
        if self.is_first:
            self.explorer.passed(seconds)
        self.asking.passed(seconds / max(len(self.shared.present), 1))
        asked, self.asked = self.asked, None
        together = last if last is not None and last.rows > done.drafted + 1 else None
        if together and self.is_first and not together.is_mixed:
            self.costs.observe(FORWARD, together.rows - 1, together.seconds)
        if done.ended:
            self.member.step = -1
        if done.ended == "stop":
            self.hindsight.drop()
            return  # a round cut short by a stop says nothing about drafts
        if done.drafted:
            self.drafted(done, together)
        else:
            self.explorer.plain_used = self.explorer.rounds
            if together is None:
                self.costs.observe(FORWARD, 0, done.verify_seconds)
            if asked is not None:
                self.asking.took(done.draft_seconds)
            elif self.is_first:
                seconds = together.seconds if together else self.costs.known[FORWARD][0]
                self.rate.add(1.0 + self.others.tokens, seconds)
        if asked or self.hindsight.followed is not None:
            self.hindsight.observe(asked or (), done.tokens, self.arms)
        if done.ended:
            self.hindsight.drop()

    def drafted(self, done: Round, together: Forward | None) -> None:
        """A round with a draft, whose tokens after the offer's own were grafted on them; `together` with others."""
        offer, drafted = done.choice.offer, done.drafted
        if offer is None or drafted > MAX_DRAFT:
            return
        arm, own = self.arm(offer), done.drafters.count(offer.drafter)
        arm.used[own] = self.explorer.rounds
        if arm.free:
            if together is None:
                self.costs.observe(FORWARD, drafted, done.verify_seconds)
            return
        arm.acceptance.observe(offer.bucket, 0, min(done.accepted, own), min(done.accepted + 1, own))
        seconds = done.seconds - min(self.asking.cost, done.draft_seconds)
        if together:
            if FORWARD in self.costs.known:
                drafting = seconds - done.verify_seconds
                self.costs.observe(arm.priced, own, drafting + self.costs.beside(0)[own])
        elif own == drafted:
            self.costs.observe(arm.priced, own, seconds)
        else:
            wider = self.costs.table(FORWARD)[own] + seconds - self.costs.table(arm.priced)[own]
            self.costs.observe(FORWARD, drafted, max(wider, TINY))
