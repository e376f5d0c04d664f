"""Length policies: how many tokens to draft in the next round. They see rounds, know no models and have no clock.

`Auto` maximises expected committed tokens over measured cost, and explores within a fixed share of the time. `Probed`
inserts rounds without a draft, from which the speed-up is measured. `SteerablePolicy` switches
between policies between any two rounds.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, repeat
from math import inf, sqrt
from operator import mul
from statistics import median_low
from typing import Literal, Protocol

from localspec.core.events import DraftLength, Mode
from localspec.core.requests import MAX_DRAFT, PROBE_EVERY
from localspec.engine.protocols import PLAIN, Choice, Offer, Round

FIRST_PROBES = (2, 5, 9)
PROBE_GAPS = (*[1] * 7, 2, 4)  # times the gap: soon ten probes, of which a speed-up is made; the last one repeats
FIRST_TRIES = (4, 0, 1)  # enough costs to draw a line through
EXPLORE_SHARE = 0.005  # of the time spent may be lost by exploring
TINY = 1e-9
DECAY = 0.99  # acceptance follows the last hundred or so rounds that reached a position
HOPE = 0.9  # prior acceptance of a position, worth one observation
COSTS_KEPT = 31
SCATTER_OVER = 50  # rounds
FEW = 3  # times that do not make a median
CALMER = 2  # times as fast as ever before: the machine was busy until then
DEAREST = 2  # rounds without a draft: the most that one row of a round costs where nothing else runs
DRAFT_COSTS = 1.1  # rounds without one, at least


class Policy(Protocol):
    """Chooses what is drafted and how much of it, and learns from the round that it led to."""

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        """Chooses at most `most` tokens of one of the offers; asking for them costs a look-up's scan."""
        ...

    def observe(self, done: Round) -> None: ...


class Constant:
    """Always k."""

    def __init__(self, k: int) -> None:
        self.k = k

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        return first(self.k, most, offers)

    def observe(self, done: Round) -> None:
        pass


def first(k: int, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
    """The first k tokens of the first offer."""
    for offer in offers() if min(k, most) > 0 else ():
        return Choice(min(k, most, offer.most), offer)
    return PLAIN


class Heuristic:
    """Drafts two more after a draft accepted whole, one less otherwise: transformers' assisted generation's rule."""

    def __init__(self, start: int = 5) -> None:
        self.k = start

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        return first(self.k, most, offers)

    def observe(self, done: Round) -> None:
        if done.drafted:
            whole = done.accepted == done.drafted
            self.k = min(self.k + 2, MAX_DRAFT) if whole else max(self.k - 1, 1)


class Costs:
    """Seconds of a round by k, a step function: each k has its own recent times, and nothing is smoothed across k.

    Few times count as a little less, by as much as they scatter: else a k that was slow once by chance would not be
    tried again. A time of less than half the least before it is not chance: the machine was busy, and all measured
    times are dropped, of every k.
    """

    def __init__(self) -> None:
        self.times: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=COSTS_KEPT))
        self.medians: dict[int, float] = {}
        self.scatter = 0.0  # usual distance of a time from its median, as a share of it
        self.compared = 0

    def observe(self, k: int, seconds: float) -> None:
        if len(self.times[k]) >= FEW and seconds < min(self.times[k]) / CALMER:
            self.forget()
        if k in self.medians:
            self.compared += 1
            distance = min(abs(seconds / max(self.medians[k], TINY) - 1), 1.0)
            self.scatter += (distance - self.scatter) / min(self.compared, SCATTER_OVER)
        self.times[k].append(seconds)
        self.medians[k] = median_low(self.times[k])

    def forget(self) -> None:
        self.times.clear()
        self.medians.clear()
        self.scatter, self.compared = 0.0, 0

    def table(self, frontier: int) -> list[float]:
        """Costs for k = 0..frontier: measured, else on the line through the measured neighbours."""
        known = {k: max(self.usual(k) * (1 - self.scatter / sqrt(len(self.times[k]))), TINY) for k in self.medians}
        return [known[k] if k in known else line(known, k) for k in range(frontier + 1)]

    def usual(self, k: int) -> float:
        """The median; of a few times the least, since any of them may be a hiccup."""
        return min(self.times[k]) if len(self.times[k]) <= FEW else self.medians[k]


class Auto:
    """argmax over k, 0 included, of expected committed tokens over measured cost.

    Acceptance is kept by position in the draft, given that the position was reached. Candidates are the k measured so
    far and one beyond. None is dropped for a slow round or two. Another k is explored now and then, first the one that
    may lose least and was unused longest; exploring may lose a fixed share of the time spent. With `least` 1 every
    round drafts.
    """

    def __init__(self, max_k: int = 8) -> None:
        self.least, self.max_k = 0, max_k
        self.costs = Costs()
        self.reached = [0.0] * max_k
        self.kept = [0.0] * max_k
        self.used = dict.fromkeys(range(max_k + 1), 0)
        self.rounds = 0
        self.allowance = 0.0  # seconds that exploring may still lose

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        return first(self.length(), most, offers)

    def length(self) -> int:
        """The length that promises most, or one that is worth exploring."""
        tried = self.costs.medians
        for k in FIRST_TRIES:
            if k not in tried and self.least <= k <= self.max_k:
                return k
        frontier = min(max(tried) + 1, self.max_k)
        expected, cost = self.expected(), self.costs.table(frontier)
        best = max({*tried, frontier} - {*range(self.least)}, key=lambda k: expected[k] / cost[k])
        pace = cost[best] / expected[best]  # seconds a token
        if doubtful := self.doubtful(best, expected, pace):
            return min(doubtful, key=lambda k: (len(self.costs.times[k]), -k))
        dearest = DEAREST * cost[0] if 0 in tried else inf  # dearer was the machine, and would keep k away for ever
        losses = {
            k: max(min(cost[k], dearest * (k + 1)) - expected[k] * pace, TINY)
            for k in range(self.least, frontier + 1)
            if k != best
        }
        other = max(losses, key=lambda k: (self.rounds - self.used[k]) / losses[k], default=best)
        if other == best or losses[other] > self.allowance:
            return best
        self.allowance -= losses[other]
        return other

    def doubtful(self, best: int, expected: list[float], pace: float) -> list[int]:
        """Lengths that only a few times make slower than the best, and that would not be if they cost hardly more than
        the cheapest round. Else one slow round at the start would exclude a length for hundreds of rounds."""
        least, times = DRAFT_COSTS * min(self.costs.medians.values()), self.costs.times
        few = [k for k in times if self.least <= k != best and len(times[k]) < FEW]
        return [k for k in few if least < expected[k] * pace]

    def observe(self, done: Round) -> None:
        self.rounds += 1
        self.allowance += EXPLORE_SHARE * done.seconds
        if done.ended == "stop" or done.drafted > self.max_k:
            return  # a round cut short by a stop says nothing about drafts
        self.used[done.drafted] = self.rounds
        self.costs.observe(done.drafted, done.seconds)
        for position in range(min(done.accepted + 1, done.drafted)):
            self.reached[position] = DECAY * self.reached[position] + 1
            self.kept[position] = DECAY * self.kept[position] + (position < done.accepted)

    def expected(self) -> list[float]:
        """Tokens that a round commits, for k = 0..max_k: 1 + a1 + a1·a2 + …"""
        return list(accumulate(accumulate(self.acceptance(), mul), initial=1.0))

    def acceptance(self) -> list[float]:
        """Acceptance by position, given that it was reached; the prior is high, so that new positions are tried."""
        return [(kept + HOPE) / (reached + 1) for reached, kept in zip(self.reached, self.kept, strict=True)]


def line(known: dict[int, float], k: int) -> float:
    """The cost at k from the nearest known on each side, or the two nearest on one side."""
    below = sorted(n for n in known if n < k)
    above = sorted(n for n in known if n > k)
    ends = (below[-1:] + above[:1]) if below and above else (below[-2:] or above[:2])
    if len(ends) == 1:
        return known[ends[0]]
    (a, b) = ends
    return max(known[a] + (known[b] - known[a]) * (k - a) / (b - a), min(known.values()))


class Probed:
    """Wraps a policy and adds probes: rounds 2, 5 and 9 of a session draft nothing, then ever fewer do."""

    def __init__(self, policy: Policy, every: int = PROBE_EVERY) -> None:
        self.policy = policy
        self.rounds = 0
        self.probes = probe_rounds(every)
        self.next_probe = next(self.probes)

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        if self.rounds + 1 == self.next_probe:
            return PLAIN
        return self.policy.choose(most, offers)

    def observe(self, done: Round) -> None:
        self.rounds += 1
        if self.rounds == self.next_probe:
            self.next_probe = next(self.probes)
        self.policy.observe(done)


def probe_rounds(every: int) -> Iterator[int]:
    """2, 5, 9, then gaps of `every` until there are ten, then one of twice and from there on four times as many."""
    yield from FIRST_PROBES
    gaps = (every * times for times in chain(PROBE_GAPS, repeat(PROBE_GAPS[-1])))
    yield from accumulate(chain([FIRST_PROBES[-1] + next(gaps)], gaps))


def fixed(k: int | Literal["heuristic"]) -> Policy:
    return Heuristic() if k == "heuristic" else Constant(k)


class SteerablePolicy:
    """Off: no drafts. Auto: `Auto` decides. On: every round but the probes drafts `k` tokens. It can be steered at any
    time, from any thread; measurements and the schedule of the probes stay."""

    def __init__(self, mode: Mode, k: DraftLength, probe_every: int = PROBE_EVERY) -> None:
        self.auto = Auto()
        self.probed = Probed(self.auto, probe_every)
        self.steer(mode, k)

    def steer(self, mode: Mode, k: DraftLength) -> None:
        """Changes mode and length from the next round on."""
        self.mode, self.auto.least = mode, int(mode == "on")
        if mode == "off":
            self.probed.policy = Constant(0)
        else:
            self.probed.policy = self.auto if mode == "auto" or k == "auto" else fixed(k)

    def for_one_answer(self, speculate: bool) -> Policy:
        """A policy for one answer, without probes: it drafts even where the mode is off, or never."""
        if not speculate:
            return Constant(0)
        return self.auto if self.mode == "off" else self.probed.policy

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        return self.probed.choose(most, offers)

    def observe(self, done: Round) -> None:
        self.probed.observe(done)
