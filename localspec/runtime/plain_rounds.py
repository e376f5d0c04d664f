"""How long a round without a draft takes while an answer is written, and how sure that is. Knows no events.

A machine changes speed, within an answer and from one to the next. So a drafted round is compared with the plain rounds
just before and after it, and how far plain rounds that follow each other differ says how far those can be wrong (von
Neumann and others, The mean square successive difference, 1941). What the answers before say counts as much as it
changed little from each to the next (Cochran, Problems arising in the analysis of a series of similar experiments,
1937).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from math import log
from statistics import fmean, median, stdev

NEAR = 3  # plain rounds on each side of a drafted one
KEPT = 24  # enough for a steady mean, few enough to follow a machine that changes speed
ANSWERS = range(3, 9)  # before this one: as many as say how they differ, and as many as are kept
CHANGES = 6  # between plain rounds: fewer say little
OUTLIER = 3.0


class PlainRounds:
    """Times of plain rounds in milliseconds: the `latest` of any answer, `times` of this one, a mean of each before."""

    def __init__(self) -> None:
        self.latest: deque[float] = deque(maxlen=KEPT)
        self.before: deque[float] = deque(maxlen=ANSWERS[-1])
        self.changes: deque[float] = deque(maxlen=KEPT)  # squared, as shares, of a round to the next
        self.times: list[float] = []
        self.drafted: list[int] = [0]  # tokens of drafted rounds before each plain one, and behind the last

    def restart(self) -> None:
        """A new answer begins."""
        if any(self.times):
            self.before.append(fmean(steady(self.times)))
        self.times, self.drafted = [], [0]

    def add(self, milliseconds: float) -> None:
        if self.times and milliseconds and self.times[-1]:
            self.changes.append(min(abs(log(milliseconds / self.times[-1])), log(OUTLIER)) ** 2)
        self.times.append(milliseconds)
        self.latest.append(milliseconds)
        self.drafted.append(0)

    def pass_over(self, tokens: int) -> None:
        """A drafted round has been."""
        self.drafted[-1] += tokens

    def level(self) -> tuple[float, float]:
        """The mean time of a plain round in this answer, and half its 95 % interval as a share of it."""
        own = self._own()
        if own is None:
            kept = steady(self.latest)
            mean = fmean(kept)
            return mean, student_95(len(kept)) * stdev(kept) / len(kept) ** 0.5 / mean if mean else 0.0
        if len(self.before) < ANSWERS[0]:
            return own
        (mean, unsure), usual = own, fmean(self.before)
        change = student_95(len(self.before)) * stdev(self.before) / usual * (1 + 1 / len(self.before)) ** 0.5
        weight = change**2 / (change**2 + unsure**2) if unsure else 1.0
        return weight * mean + (1 - weight) * usual, weight**0.5 * unsure

    def _own(self) -> tuple[float, float] | None:
        """The same by the plain rounds of this answer alone; None where it has none, or they say nothing."""
        if not self.times or len(self.changes) < CHANGES:
            return None
        usual = median(self.times)
        times = [one if one <= OUTLIER * usual else usual for one in self.times]  # the machine's hiccups
        sums = [0.0, *accumulate(times)]
        weights = [0.0] * (len(times) + 1)  # differences of the weights of successive rounds
        total = float(sum(times))
        for index, tokens in enumerate(self.drafted):
            if tokens:
                start, end = max(index - NEAR, 0), min(index + NEAR, len(times))
                total += tokens * (sums[end] - sums[start]) / (end - start)
                weights[start] += tokens / (end - start)
                weights[end] -= tokens / (end - start)
        tokens = len(times) + sum(self.drafted)
        spread = (fmean(self.changes) / 2 * sum(one**2 for one in accumulate(weights[:-1]))) ** 0.5
        return total / tokens, student_95(1 + 2 * len(self.changes) // 3) * spread / tokens


def steady(times: Sequence[float]) -> list[float]:
    """The times under three times their median."""
    limit = OUTLIER * median(times)
    return [one for one in times if one <= limit]


def student_95(count: int) -> float:
    """How many standard errors make a 95 % interval of a mean of `count` >= 3 (Cornish and Fisher's expansion)."""
    freedom = count - 1
    return 1.96 + 2.37 / freedom + 2.82 / freedom**2 + 2.56 / freedom**3
