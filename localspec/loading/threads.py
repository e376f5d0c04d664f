"""How many threads compute a row, chosen anew between rounds: other programs may need the cores by then, or no more.

A count that was best while the machine was quiet may be far slower than one thread beside another program. Only for a
decoder whose numbers do not depend on it. Knows nothing about drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from time import perf_counter

from localspec.engine.protocols import Resident
from localspec.loading.resident import fewest, mean_row, set_threads

SHARE = 0.02  # of the time that rounds take goes into measuring
FIRST_SECONDS = 1.0  # of rounds, before the first time
NEWS = 0.5  # how much a new time weighs against those before


class Threads:
    """`counts` to choose from, rising, and the one that is in use. A time of `seconds` is a row's."""

    def __init__(self, counts: Sequence[int], count: int) -> None:
        self.counts, self.count = counts, count
        self._seconds: dict[int, float] = {}
        self._price, self._saved = SHARE * FIRST_SECONDS, 0.0
        self._steps = cycle((-1, 1))

    def after(self, seconds: float, decoders: Sequence[Resident]) -> None:
        """A round took so long; the decoders that are beside the first compute with as many threads as that."""
        self._saved += SHARE * seconds
        target = decoders[0]
        if self._saved < self._price or target.length >= target.context or len(self.counts) == 1:
            return
        started = perf_counter()
        self.count = self._better(target)
        self._price, self._saved = perf_counter() - started, 0.0
        set_threads(target, self.count)
        for decoder in decoders[1:]:
            if decoder.device == target.device:  # torch's threads, if it is torch's, were taken for measuring
                decoder.set_threads(self.count)

    def _better(self, target: Resident) -> int:
        """The better of the count in use and its neighbour below or above, in turn."""
        at, step = self.counts.index(self.count), next(self._steps)
        other = self.counts[at + step if 0 <= at + step < len(self.counts) else at - step]
        for count in (self.count, other):
            new = mean_row(target, count, least=1)
            old = self._seconds.get(count, new)
            self._seconds[count] = old + NEWS * (new - old)
        return fewest({count: self._seconds[count] for count in sorted((self.count, other))})
