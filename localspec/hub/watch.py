"""What the threads of one transfer report: bytes, what each is doing, and when the hub was last heard from.

Knows no network and no files; every method may be called from any thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event, Lock

from localspec.core.events import Notice
from localspec.core.sizes import size_words
from localspec.hub.records import Retrying, Stage

WatchEvent = Retrying | Notice
A_MEGABYTE = 1_000_000


class Stopped(Exception):
    """Raised in a thread of a transfer that has ended."""


class Watch:
    """`have`: the bytes of each file that are on disk at the start."""

    def __init__(self, have: Mapping[str, int]) -> None:
        self.stop = Event()
        self.reported: SimpleQueue[WatchEvent | None] = SimpleQueue()  # None: a thread has ended
        self.latest = ""
        self.checked = set[str]()
        self._have = dict(have)
        self._arrived = 0
        self._heard: dict[str, float] = {}  # files that wait for the hub: when its last byte came
        self._reading = set[str]()
        self._lock = Lock()

    @property
    def have_bytes(self) -> int:
        with self._lock:
            return sum(self._have.values())

    @property
    def kept(self) -> str:
        """What a person has when it ends here."""
        have = self.have_bytes
        return (
            f"{size_words(have)} are kept; repeat to go on." if have >= A_MEGABYTE else "Repeat the command to go on."
        )

    @property
    def arrived_bytes(self) -> int:
        """All that came over the line, with what was thrown away again."""
        return self._arrived

    @property
    def stage(self) -> Stage:
        with self._lock:
            return "checking" if self._reading and not self._heard else "downloading"

    @property
    def silent_seconds(self) -> float:
        """How long the hub has sent nothing at all; 0 while nothing is asked of it."""
        with self._lock:
            return time.monotonic() - max(self._heard.values()) if self._heard else 0.0

    def moved(self, path: str, count: int) -> None:
        """Counts bytes of a file that came; negative: they were thrown away."""
        self.go_on()
        with self._lock:
            self._have[path] += count
            self._arrived += max(0, count)
            self.latest = path
        self.hear(path)

    def hear(self, path: str) -> None:
        """The hub has answered something about this file."""
        with self._lock:
            if path in self._heard:
                self._heard[path] = time.monotonic()

    def found(self, path: str, count: int) -> None:
        """A file has so many bytes, which this transfer did not fetch."""
        self.go_on()
        with self._lock:
            self._have[path] = count

    def go_on(self) -> None:
        if self.stop.is_set():
            raise Stopped

    @contextmanager
    def asking(self, path: str) -> Iterator[None]:
        """The hub is asked for this file, however often."""
        self.go_on()
        with self._lock:
            self._heard[path] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._heard[path]

    def rest(self, path: str, seconds: float) -> None:
        """Waits before this file is asked for again: the hub has answered, so that is no silence of its own. Stopped
        where the transfer ends meanwhile."""
        with self._lock:
            del self._heard[path]
        is_over = self.stop.wait(seconds)
        with self._lock:
            self._heard[path] = time.monotonic()
        if is_over:
            raise Stopped

    @contextmanager
    def reading(self, path: str) -> Iterator[None]:
        """Bytes that are on disk already are hashed."""
        with self._lock:
            self._reading.add(path)
            self.latest = path
        try:
            yield
        finally:
            with self._lock:
                self._reading.discard(path)
