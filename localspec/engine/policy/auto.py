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
from localspec.engine.policy.costs import FEW, FORWARD, TINY, Costs
from localspec.engine.policy.hindsight import Hindsight
from localspec.engine.protocols import PLAIN, Choice, Offer, Round

EXPLORE_SHARE = 0.005  # of the time spent may be lost by exploring
DEAREST = 2  # rounds without a draft: the most that one row of a round costs where nothing else runs
DRAFT_COSTS = 1.1  # rounds without one, at least
FREE_EXPLORED = 8  # rounds: lengths of known tokens are explored less often, since only their cost is in doubt


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

    Another length is explored now and then, first the one that may lose least and was unused longest; exploring may
    lose a fixed share of the time spent. None is dropped for a slow round or two. With `least` 1 every round drafts.
    """

    def __init__(self, max_k: int = 8) -> None:
        self.least, self.max_k = 0, max_k
        self.costs = Costs()
        self.arms: dict[str, Arm] = {}
        self.asking = Asking()
        self.hindsight = Hindsight()
        self.rate = Rate()
        self.asked: Sequence[Offer] | None = None  # what was offered for this round; None where nobody was asked
        self.plain_used = 0
        self.rounds = 0
        self.allowance = 0.0  # seconds that exploring may still lose

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        self.asked = None
        if most < 1 or not (self.least or self.asking.due()):
            return PLAIN
        self.asked = asked = offers()
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
        plain = candidates[0].cost[0]
        rate = self.rate.value or 1 / plain
        best, value, k = None, -inf if self.least else 1 - rate * plain, 0
        for one in candidates:
            found, length = one.best(rate)
            if found > value:
                best, value, k = one, found, length
        if best is None:
            self.rate.add(1.0, plain)
        else:
            self.rate.add(best.expected[k], best.cost[k])
        self.asking.answered((value - 1) / rate + plain)
        other = self.doubtful(candidates, best, k, value, rate) or self.explored(candidates, best, k, value, rate)
        if other is not None:
            best, k = other
        if best is None:
            return PLAIN
        return Choice(k, best.offer, () if best.arm.free else self.graft(candidates, best, k, rate))

    def doubtful(self, candidates, best, k, value, rate):  # type: ignore[no-untyped-def]
        """Lengths that only a few times make slower than the best, and that would not be if they cost hardly more than
        the cheapest round. Else one slow round at the start would exclude a length for hundreds of rounds."""
        least, few = DRAFT_COSTS * self.costs.least * rate, []
        if best is not None and not self.least and len(self.costs.plain) < FEW and 1 - least > value:
            few.append((len(self.costs.plain), 0, 0, None))
        for index, one in enumerate(candidates):
            times = self.costs.tried(one.arm.priced)
            few += [
                (len(times[n]), -n, index, one)
                for n in one.lengths
                if n in times
                and len(times[n]) < FEW
                and one.expected[n] - least > value
                and not (one is best and n == k)
            ]
        if not few:
            return None
        _, negative, _, one = min(few, key=lambda each: each[:3])
        return one, -negative

    def explored(self, candidates, best, k, value, rate):  # type: ignore[no-untyped-def]
        plain = candidates[0].cost[0]
        dearest = DEAREST * plain if len(self.costs.plain) else inf  # dearer was the machine, and would keep k away
        options = []
        if best is not None and not self.least:
            options.append((max(plain + (value - 1) / rate, TINY), self.plain_used, None, 0))
        for one in candidates:
            if one.arm.free and self.rounds % FREE_EXPLORED:
                continue
            for n in one.lengths:
                if one is not best or n != k:
                    loss = max(min(one.cost[n], dearest * (n + 1)) + (value - one.expected[n]) / rate, TINY)
                    options.append((loss, one.arm.used.get(n, 0), one, n))
        if not options:
            return None
        loss, _, one, n = max(options, key=lambda each: (self.rounds - each[1]) / each[0])
        if loss > self.allowance:
            return None
        self.allowance -= loss
        return one, n

    def graft(self, candidates: list[Candidate], best: Candidate, k: int, rate: float) -> tuple[int, ...]:
        """Looked-up tokens behind the k drafted ones, where they pay if the first k are the same: that two drafters
        agree makes both more trustworthy."""
        ours = best.expected[k] - best.expected[k - 1]
        for one in candidates:
            theirs = one.expected[k] - one.expected[k - 1] if one.arm.free and one.most > k else 0.0
            if theirs < NEGLIGIBLE:
                continue
            chance = (1 - (1 - ours) * (1 - theirs)) / theirs
            gains = [(chance * one.expected[n] - rate * one.cost[n], n) for n in one.lengths if n >= k]
            if gains and (n := max(gains)[1]) > k:
                return one.offer.tokens[:n]
        return ()

    def observe(self, done: Round) -> None:
        self.rounds += 1
        seconds = done.seconds
        self.allowance += EXPLORE_SHARE * seconds
        self.asking.passed(seconds)
        asked, self.asked = self.asked, None
        if done.ended == "stop":
            self.hindsight.drop()
            return  # a round cut short by a stop says nothing about drafts
        if done.drafted:
            self.drafted(done)
        else:
            self.plain_used = self.rounds
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
        arm.used[own] = self.rounds
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
