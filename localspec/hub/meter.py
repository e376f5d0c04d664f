"""How far a download is: bytes that never fall, their rate over the last seconds, and the time left.

Knows no files and no network; the clock is a parameter.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from localspec.hub.records import Progress, Stage

WINDOW_SECONDS = 5.0


class Meter:
    """`here`: the bytes that were there at the start."""

    def __init__(self, repo: str, total: int, here: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._repo, self._total, self._resumed, self._clock = repo, total, here, clock
        self._done = here
        self._arrived = 0
        self._samples = deque([(clock(), 0)])

    def arrived(self, count: int) -> None:
        """Takes the count of bytes that have come over the line by now."""
        self._arrived = count

    def progress(self, stage: Stage, have: int, file: str = "") -> Progress:
        """The event for these bytes on disk. Bytes that were thrown away leave the bar where it was."""
        self._done = max(self._done, min(have, self._total))
        rate = self._rate()
        left = self._total - self._done
        return Progress(
            self._repo,
            stage,
            self._done,
            self._total,
            self._resumed,
            file,
            bytes_per_second=rate,
            eta_s=left / rate if rate else None,
        )

    def _rate(self) -> float | None:
        """Bytes a second over the last seconds; None before there is anything to measure."""
        now = self._clock()
        self._samples.append((now, self._arrived))
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_SECONDS:
            self._samples.popleft()
        began, before = self._samples[0]
        return (self._arrived - before) / (now - began) if self._arrived and now > began else None
