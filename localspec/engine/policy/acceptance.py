"""How often a drafter's tokens are accepted, by position in the draft and by how far they were trusted beforehand.

Knows counts; no tokens, no costs.
"""

from __future__ import annotations

from localspec.core.requests import MAX_DRAFT

DECAY = 0.985  # follows the last seventy or so rounds that reached a position
HOPE = 0.9  # prior acceptance of a position, worth one observation: new positions are tried
SHRINK = 4.0  # observations that the drafter's mean is worth beside a bucket's own
FAST = 0.9  # surprises are those of the last ten rounds or so
SURPRISE = 3.5  # standard deviations between what was expected and what was accepted: the text has changed
FIRST = 4  # positions in which a change shows
KEPT_OVER = 0.1  # of what was counted before a change
NEGLIGIBLE = 0.02  # the chance of reaching a position, beyond which none is worth computing


class PositionCounts:
    """Counts the drafts that reached each position, and those that had it accepted; decays."""

    __slots__ = ("kept", "reached")

    def __init__(self) -> None:
        self.reached = [0.0] * MAX_DRAFT
        self.kept = [0.0] * MAX_DRAFT

    def add(self, start: int, kept: int, tested: int) -> None:
        """Positions from `start` on: so many were `tested`, and the first `kept` of them accepted."""
        for position in range(start, start + tested):
            self.reached[position] = DECAY * self.reached[position] + 1
            self.kept[position] = DECAY * self.kept[position] + (position < start + kept)

    def scale(self, factor: float) -> None:
        self.reached = [factor * count for count in self.reached]
        self.kept = [factor * count for count in self.kept]


class Acceptance:
    """One drafter's, given that the position was reached: a bucket's own counts, shrunk to the mean of all buckets.

    Where far more or far less is accepted than expected, most of what was counted is forgotten: the text has changed,
    from prose to code, say.
    """

    def __init__(self) -> None:
        self.mean = PositionCounts()
        self.buckets: dict[int, PositionCounts] = {}
        self.surprise = self.variance = 0.0

    def observe(self, bucket: int, start: int, kept: int, tested: int) -> None:
        """Positions from `start` on of an offer of this bucket: so many were `tested`, the first `kept` accepted."""
        counts = self.counts(bucket)
        for position in range(start, min(start + tested, FIRST)):
            chance = self.at(counts, position)
            self.surprise += (position < start + kept) - chance
            self.variance += chance * (1 - chance)
        if self.surprise**2 > SURPRISE**2 * max(self.variance, 1.0):
            self.forget()
        self.surprise *= FAST
        self.variance *= FAST
        self.mean.add(start, kept, tested)
        counts.add(start, kept, tested)

    def forget(self) -> None:
        self.surprise = self.variance = 0.0
        for counts in (self.mean, *self.buckets.values()):
            counts.scale(KEPT_OVER)

    def counts(self, bucket: int) -> PositionCounts:
        found = self.buckets.get(bucket)
        if found is None:
            found = self.buckets[bucket] = PositionCounts()
        return found

    def at(self, counts: PositionCounts, position: int) -> float:
        mean = (self.mean.kept[position] + HOPE) / (self.mean.reached[position] + 1)
        return (counts.kept[position] + SHRINK * mean + HOPE) / (counts.reached[position] + SHRINK + 1)

    def expected(self, bucket: int, most: int) -> list[float]:
        """Tokens that a round commits, for k = 0..most: 1 + a1 + a1·a2 + …; up to a position hardly reached."""
        counts, total, chance = self.counts(bucket), 1.0, 1.0
        expected = [total]
        pairs = zip(counts.kept[:most], counts.reached, self.mean.kept, self.mean.reached, strict=False)
        for kept, reached, mean_kept, mean_reached in pairs:  # `at`, written out: this is most of what a choice costs
            mean = (mean_kept + HOPE) / (mean_reached + 1)
            chance *= (kept + SHRINK * mean + HOPE) / (reached + SHRINK + 1)
            total += chance
            expected.append(total)
            if chance < NEGLIGIBLE:
                break
        return expected
