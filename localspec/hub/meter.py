"""How far a pull is, its target and drafter together: bytes that never fall, their rate over the last seconds, and the
time left.

Knows no files and no network; the clock is a parameter.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from localspec.hub.records import Progress, Stage

WINDOW_SECONDS = 5.0
SLOW_BYTES_PER_SECOND = 100_000
SLOW_SHARE = 1 / 10  # of the fastest that this download was
LONGEST_SECONDS = 360_000.0  # a time left above this says nothing


class Meter:
    """`total`: the bytes of all repositories; `here`: those of them that were there at the start."""

    def __init__(self, total: int, here: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._resumed, self._clock = total, here, clock
        self._repo, self._elsewhere, self._before = "", 0, 0
        self._done = here
        self._arrived = 0
        self._samples = deque([(clock(), 0)])
        self._first: float | None = None  # when the first byte came
        self._fastest = 0.0

    @property
    def total(self) -> int:
        """The bytes of all repositories."""
        return self._total

    def on_disk(self, have: int) -> int:
        """The bytes of all repositories that are on disk, with these of the one whose turn it is."""
        return self._elsewhere + have

    def turn_to(self, repo: str, elsewhere: int) -> None:
        """Takes the bytes of this repository from now on; `elsewhere`: those of the others that are on disk."""
        self._repo, self._elsewhere, self._before = repo, elsewhere, self._arrived

    def arrived(self, count: int) -> None:
        """Takes the count of the repository's bytes that have come over the line by now."""
        if count and self._first is None:
            self._first = self._clock()
        self._arrived = self._before + count

    def progress(self, stage: Stage, have: int, file: str = "") -> Progress:
        """The event for these bytes of the repository on disk. Bytes that were thrown away leave the bar where it
        was."""
        self._done = max(self._done, min(self.on_disk(have), self._total))
        rate = self._rate()
        seconds = (self._total - self._done) / rate if rate else LONGEST_SECONDS
        return Progress(
            self._repo,
            stage,
            self._done,
            self._total,
            self._resumed,
            file,
            bytes_per_second=rate,
            eta_s=seconds if seconds < LONGEST_SECONDS else None,
            slow=self._is_slow(rate) and stage == "downloading",
        )

    def _is_slow(self, rate: float | None) -> bool:
        """Whether bytes come, but over a whole window few of them. A line on which none comes is silent, not slow: how
        long that may last is the transfer's to say."""
        if rate is None or self._first is None or self._samples[0][0] < self._first:
            return False
        self._fastest = max(self._fastest, rate)
        return 0 < rate < max(SLOW_BYTES_PER_SECOND, SLOW_SHARE * self._fastest)

    def _rate(self) -> float | None:
        """Bytes a second over the last seconds; None before there is anything to measure."""
        now = self._clock()
        self._samples.append((now, self._arrived))
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_SECONDS:
            self._samples.popleft()
        began, before = self._samples[0]
        return (self._arrived - before) / (now - began) if self._arrived and now > began else None
