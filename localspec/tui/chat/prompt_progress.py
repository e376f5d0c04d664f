"""How far the reading of a prompt is, and how long it will take, from its own events. Knows no engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic

from localspec.core.events import Prefill

MEASUREMENTS = 6  # the last ones: the further a prompt has been read, the slower each part is
LEAST_SECONDS = 0.05  # between two of them; events that waited for the screen arrive at once
MINUTES_FROM = 100  # seconds


class PromptReading:
    """Follows one prompt after the other: a count that falls, or another total, begins the next."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._total = 0
        self._measured: deque[tuple[float, int]] = deque(maxlen=MEASUREMENTS)

    def words(self, event: Prefill) -> str:
        """Tokens read and, from the second measurement on, the time left."""
        self._measure(event)
        read = f"reading {event.cached + event.done:,} of {event.total:,} tokens"
        seconds = self._seconds_left()
        if seconds is None or seconds < 1:
            return read
        return f"{read} · {f'{seconds:.0f} s' if seconds < MINUTES_FROM else f'{seconds / 60:.0f} min'} left"

    def _measure(self, event: Prefill) -> None:
        now, done = self._clock(), event.cached + event.done
        if event.total != self._total or (self._measured and done < self._measured[-1][1]):
            self._measured.clear()
        self._total = event.total
        if not self._measured or now - self._measured[-1][0] >= LEAST_SECONDS:
            self._measured.append((now, done))

    def _seconds_left(self) -> float | None:
        (began, before), (now, done) = self._measured[0], self._measured[-1]
        return (self._total - done) * (now - began) / (done - before) if done > before else None
