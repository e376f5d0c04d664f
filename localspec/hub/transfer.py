"""Fetches the files of one repository at one commit into the shared cache: resumed by byte, hashed as they come.

Four files at a time, each in a thread; what happens is read as events from one iterator. Knows no plan and no refs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty
from threading import Thread

from localspec.core.disk import SPARE_BYTES
from localspec.core.errors import FULL, HubAway, PullError
from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.hub import blobs
from localspec.hub.fetcher import Fetcher
from localspec.hub.meter import Meter
from localspec.hub.records import Progress, Repository, Stage
from localspec.hub.watch import Stopped, Watch, WatchEvent

AT_ONCE = 4  # files; one stream rarely fills a line
THREADS = "a file's download"
WITHOUT_XET = " Without --xet localspec fetches the weights itself."  # where only its storage is out of reach


@dataclass(frozen=True, slots=True)
class TransferTimeouts:
    """Seconds: without a byte, after which a transfer ends; of the waits before each new try, while none brings a byte;
    between two events, at least and at most."""

    silence: float = 30.0
    waits: tuple[float, ...] = (1, 2, 4, 8, 16, 30)
    tick: float = 0.1
    beat: float = 1.0


class Transfer:
    """One repository's files. `events` is iterated once, to its end or closed; threads that a silent hub holds end with
    the process. `meter` has turned to it. `checked`: the files whose bytes were found to have the hub's sha256."""

    def __init__(
        self,
        repository: Repository,
        meter: Meter,
        *,
        xet: bool = False,
        deadlines: TransferTimeouts = TransferTimeouts(),
    ) -> None:
        self._repository, self._meter, self._deadlines, self._xet = repository, meter, deadlines, xet
        here = {file.path: blobs.bytes_here(repository.repo, file) for file in repository.files}
        self._watch = Watch(here)
        self._fetcher = Fetcher(repository, self._watch, xet=xet, waits=deadlines.waits)
        self._faults = deque[Exception]()

    @property
    def checked(self) -> int:
        return len(self._watch.checked)

    def events(self) -> Iterator[Progress | WatchEvent]:
        """Everything that happens, at least once a second, until all files are whole, checked and linked."""
        files = sorted(self._repository.files, key=lambda file: file.size)  # without small ones the rest is no model
        try:
            yield from self._run([partial(self._fetcher.fetch, file) for file in files])
            yield from self._run([self._fetcher.link], "linking")
        finally:
            self._watch.stop.set()

    def _run(self, jobs: Sequence[Callable[[], None]], stage: Stage | None = None) -> Iterator[Progress | WatchEvent]:
        """Runs these in threads, and yields what happens until all have ended; the first fault ends them."""
        waiting = deque(jobs)
        threads = [Thread(target=self._work, args=(waiting,), name=THREADS, daemon=True) for _ in jobs[:AT_ONCE]]
        for thread in threads:
            thread.start()
        shown, shown_bytes = 0.0, -1
        while any(thread.is_alive() for thread in threads) or not self._watch.reported.empty():
            if reported := self._next():
                yield reported
            self._refuse()
            now, have = time.monotonic(), self._watch.have_bytes
            if now - shown >= (self._deadlines.tick if have != shown_bytes else self._deadlines.beat):
                shown, shown_bytes = now, have
                yield self._progress(stage)
        self._refuse()
        yield self._progress(stage)

    def _work(self, waiting: deque[Callable[[], None]]) -> None:
        """A thread's life: one job after the other, until one of any thread fails."""
        try:
            while not self._faults and (job := taken(waiting)):
                job()
        except Stopped:
            pass
        except Exception as fault:
            self._faults.append(fault)
        finally:
            self._watch.reported.put(None)

    def _next(self) -> WatchEvent | None:
        """What a thread reports next; None when it is time to look at the bytes."""
        with suppress(Empty):
            return self._watch.reported.get(timeout=self._deadlines.tick)
        return None

    def _progress(self, stage: Stage | None) -> Progress:
        self._meter.arrived(self._watch.arrived_bytes)
        return self._meter.progress(stage or self._watch.stage, self._watch.have_bytes, self._watch.latest)

    def _refuse(self) -> None:
        """Raises a thread's fault, or HubAway where the hub has been silent for too long."""
        if self._faults:
            fault = self._faults[0]
            if isinstance(fault, OSError) and fault.errno in FULL:
                raise self._full() from fault
            if isinstance(fault, OSError) and fault.filename:
                message = f"{one_line(str(fault.filename))} cannot be written ({fault.strerror})."
                raise PullError(message, hint="Check its permissions, or move the cache: HF_HUB_CACHE.") from fault
            raise fault
        if self._watch.silent_seconds > (silence := self._deadlines.silence):
            hint = f"{self._watch.kept}{WITHOUT_XET if self._xet else ''}"
            raise HubAway(f"The hub stopped answering ({silence:g} s).", hint=hint)

    def _full(self) -> PullError:
        """What is kept and what is missing where the disk is full, of the target and its drafter."""
        have, total = self._meter.on_disk(self._watch.have_bytes), self._meter.total
        others = sum(map(blobs.size, blobs.parts())) - sum(map(blobs.size, blobs.parts(self._repository.repo)))
        shown = f" (localspec ls --unfinished shows {size_words(others)} of others' parts)" if others else ""
        return PullError(
            f"The disk is full: {size_words(have)} of {size_words(total)} are kept.",
            hint=f"Free {size_words(total - have + SPARE_BYTES)}{shown}, then repeat.",
        )


def taken(waiting: deque[Callable[[], None]]) -> Callable[[], None] | None:
    """The next job; None when other threads have taken the last."""
    try:
        return waiting.popleft()
    except IndexError:
        return None
