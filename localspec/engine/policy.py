"""How many tokens to draft in the next round. Sees rounds, knows nothing about models; no clock of its own.

`Auto` maximises expected committed tokens over measured cost, and looks elsewhere only as far as a fixed share of the
time allows. `Probed` puts rounds without a draft in between, from which the speed-up is measured. `Steered` is told
between any two rounds which of them to follow.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import accumulate, chain, repeat
from math import inf, sqrt
from operator import mul
from statistics import median_low
from typing import Literal, Protocol

from localspec.engine.protocols import Round

MAX_DRAFT = 16
FIRST_PROBES = (2, 5, 9)
PROBE_EVERY = 16  # rounds
PROBE_GAPS = (1, 2, 4)  # of those; the last one repeats
FIRST_TRIES = (4, 0, 1)  # two costs and a draft's worth: enough to draw a line through
EXPLORE_SHARE = 0.005  # of the time spent may be lost by looking elsewhere
TINY = 1e-9
DECAY = 0.99  # acceptance follows the last hundred or so rounds that reached a place
HOPE = 0.9  # acceptance of a place that was never tried, worth one observation
COSTS_KEPT = 31
SCATTER_OVER = 50  # rounds
FEW = 3  # times that do not make a median
CALMER = 2  # times as fast as ever before: the machine was busy until now
DEAREST = 2  # rounds without a draft: the most that one row of a round costs where nothing else runs
DRAFT_COSTS = 1.1  # rounds without one, at least

Mode = Literal["on", "auto", "off"]


class Policy(Protocol):
    """Chooses k, and learns from what came of it."""

    def next(self) -> int: ...

    def observe(self, done: Round) -> None: ...


class Constant:
    """Always k."""

    def __init__(self, k: int) -> None:
        self.k = k

    def next(self) -> int:
        return self.k

    def observe(self, done: Round) -> None:
        pass


class Heuristic:
    """Two more after a draft accepted whole, one less otherwise: assisted generation's rule."""

    def __init__(self, start: int = 5) -> None:
        self.k = start

    def next(self) -> int:
        return self.k

    def observe(self, done: Round) -> None:
        if done.drafted:
            whole = done.accepted == done.drafted
            self.k = min(self.k + 2, MAX_DRAFT) if whole else max(self.k - 1, 1)


class Costs:
    """Seconds of a round by k, a step function: each k has its own recent times, and nothing is smoothed across k.

    While few were seen they count as a little less, by as much as times scatter: else a k that was slow once by
    chance would not be tried again. A time of less than half the least before it is no chance: the machine was busy,
    and what was measured then is forgotten, of every k.
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
        """For k = 0..frontier: measured, else on the line through its measured neighbours."""
        known = {k: max(self.usual(k) * (1 - self.scatter / sqrt(len(self.times[k]))), TINY) for k in self.medians}
        return [known[k] if k in known else line(known, k) for k in range(frontier + 1)]

    def usual(self, k: int) -> float:
        """The median; of a few times the least, since any of them may be a hiccup."""
        return min(self.times[k]) if len(self.times[k]) <= FEW else self.medians[k]


class Auto:
    """argmax over k, 0 included, of expected committed tokens over measured cost.

    Acceptance is kept by place in the draft, given that the place was reached. Candidates are the k measured so far and
    one beyond. None is given up for a slow round or two. Another k is tried now and then, soonest where it may lose
    least and was unused longest; what such tries may lose is a fixed share of the time spent. With `least` 1 not
    drafting is no choice.
    """

    def __init__(self, max_k: int = 8) -> None:
        self.least, self.max_k = 0, max_k
        self.costs = Costs()
        self.reached = [0.0] * max_k
        self.kept = [0.0] * max_k
        self.used = dict.fromkeys(range(max_k + 1), 0)
        self.rounds = 0
        self.allowance = 0.0  # seconds that exploring may still lose

    def next(self) -> int:
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
        """Lengths that look slower than the best by a few times alone, and would not be if they cost hardly more than
        the cheapest round. Else a slow round at the start is held against one for hundreds."""
        least, times = DRAFT_COSTS * min(self.costs.medians.values()), self.costs.times
        few = [k for k in times if self.least <= k != best and len(times[k]) < FEW]
        return [k for k in few if least < expected[k] * pace]

    def observe(self, done: Round) -> None:
        self.rounds += 1
        self.allowance += EXPLORE_SHARE * done.seconds
        if done.ended == "stop" or done.drafted > self.max_k:
            return  # what a stop cut short says nothing about drafts
        self.used[done.drafted] = self.rounds
        self.costs.observe(done.drafted, done.seconds)
        for place in range(min(done.accepted + 1, done.drafted)):
            self.reached[place] = DECAY * self.reached[place] + 1
            self.kept[place] = DECAY * self.kept[place] + (place < done.accepted)

    def expected(self) -> list[float]:
        """Tokens that a round commits, for k = 0..max_k: 1 + a1 + a1·a2 + …"""
        return list(accumulate(accumulate(self.acceptance(), mul), initial=1.0))

    def acceptance(self) -> list[float]:
        """By place, given that it was reached; a place hardly tried is hoped to be good, so that it gets tried."""
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
    """Another policy, with rounds of no draft at places 2, 5 and 9 of a session, then further and further apart."""

    def __init__(self, policy: Policy, every: int = PROBE_EVERY) -> None:
        self.policy = policy
        self.rounds = 0
        self.probes = probe_rounds(every)
        self.next_probe = next(self.probes)

    def next(self) -> int:
        if self.rounds + 1 == self.next_probe:
            return 0
        return self.policy.next()

    def observe(self, done: Round) -> None:
        self.rounds += 1
        if self.rounds == self.next_probe:
            self.next_probe = next(self.probes)
        self.policy.observe(done)


def probe_rounds(every: int) -> Iterator[int]:
    """2, 5, 9, then gaps of `every`, twice and from there on four times as many."""
    yield from FIRST_PROBES
    gaps = (every * times for times in chain(PROBE_GAPS, repeat(PROBE_GAPS[-1])))
    yield from accumulate(chain([FIRST_PROBES[-1] + next(gaps)], gaps))


def fixed(k: str) -> Policy:
    """ "heuristic", or a number."""
    return Heuristic() if k == "heuristic" else Constant(int(k))


class Steered:
    """Off: no drafts. Auto: `Auto` decides. On: every round drafts, probes aside, as `k` says. May be told otherwise at
    any time, from any thread; what was learnt stays, and so do the places of the probes."""

    def __init__(self, mode: Mode, k: str, probe_every: int = PROBE_EVERY) -> None:
        self.auto = Auto()
        self.probed = Probed(self.auto, probe_every)
        self.steer(mode, k)

    def steer(self, mode: Mode, k: str) -> None:
        """From the next round on."""
        self.mode, self.auto.least = mode, int(mode == "on")
        learning = mode == "auto" or k == "auto"
        self.probed.policy = Constant(0) if mode == "off" else self.auto if learning else fixed(k)

    def once(self, speculate: bool) -> Policy:
        """For one generation that drafts as it would if that were not off, or does not draft at all; without probes."""
        if not speculate:
            return Constant(0)
        return self.auto if self.mode == "off" else self.probed.policy

    def next(self) -> int:
        return self.probed.next()

    def observe(self, done: Round) -> None:
        self.probed.observe(done)
