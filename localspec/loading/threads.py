"""How many threads compute a row, chosen again between rounds: other programs may start to use the cores, or stop.
A prompt is read with all of them.

A count that was best while the machine was quiet may be far slower than one thread beside another program. Only for a
decoder whose numbers do not depend on the count. Knows nothing about drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from time import perf_counter

from localspec.engine.protocols import Resident
from localspec.loading.resident_decoder import fewest, mean_row, set_threads

SHARE = 0.02  # of the time that rounds take goes into measuring
FIRST_SECONDS = 1.0  # of rounds, before the first time
NEWS = 0.5  # how much a new time weighs against those before
LONG = 64  # tokens of a prompt; a shorter one is read before the threads are changed twice


class Threads:
    """`counts` to choose from, rising, and the one that is in use. A time of `seconds` is a row's."""

    def __init__(self, counts: Sequence[int], count: int) -> None:
        self.counts, self.count = counts, count
        self._seconds: dict[int, float] = {}
        self._price, self._saved = SHARE * FIRST_SECONDS, 0.0
        self._steps = cycle((-1, 1))
        self._reads = False

    def after(self, seconds: float, decoders: Sequence[Resident]) -> None:
        """A round took so long; the decoders that are beside the first compute with as many threads as that."""
        self._saved += SHARE * seconds
        target = decoders[0]
        if self._saved < self._price or target.length >= target.context or len(self.counts) == 1:
            return
        started = perf_counter()
        self.count = self._better(target)
        self._price, self._saved = perf_counter() - started, 0.0
        self._use(self.count, decoders)

    def read(self, tokens: int, decoders: Sequence[Resident]) -> None:
        """Prepares for reading so many tokens. A row alone has hundreds of short phases, at each of which a thread
        that another program holds up delays all; many rows together have long ones, and each thread more is a share
        more of the cores."""
        if tokens >= LONG and self.count < self.counts[-1]:
            self._reads = True
            self._use(self.counts[-1], decoders)

    def write(self, decoders: Sequence[Resident]) -> None:
        """The prompt is read."""
        if self._reads:
            self._reads = False
            self._use(self.count, decoders)

    @staticmethod
    def _use(count: int, decoders: Sequence[Resident]) -> None:
        target = decoders[0]
        set_threads(target, count)
        for decoder in decoders[1:]:
            if decoder.device == target.device:  # torch's threads, if it is torch's, were taken for measuring
                decoder.set_threads(count)

    def _better(self, target: Resident) -> int:
        """The better of the count in use and its neighbour below or above, in turn."""
        at, step = self.counts.index(self.count), next(self._steps)
        other = self.counts[at + step if 0 <= at + step < len(self.counts) else at - step]
        for count in (self.count, other):
            new = mean_row(target, count, least=1)
            old = self._seconds.get(count, new)
            self._seconds[count] = old + NEWS * (new - old)
        return fewest({count: self._seconds[count] for count in sorted((self.count, other))})
