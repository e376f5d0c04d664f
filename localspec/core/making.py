"""Of several processes that would make the same file, one makes it, and the others wait while it shows signs of life.

The system takes a lock from a process that ends, however it ends. Where there are no locks nobody waits. Knows nothing
about what is made.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

from localspec.core.drain import relay

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SILENCE_SECONDS = 30.0  # of a process that was stopped: then another makes it, too
LOOK_SECONDS = 0.2
Step = TypeVar("Step")
Value = TypeVar("Value")


class Making:
    """`lock`: an open file; None where there is none, and everybody makes it."""

    def __init__(self, lock: int | None) -> None:
        self._lock = lock
        self._is_ours = lock is None

    def wait(self) -> Iterator[None]:
        """Ends when nobody else makes it any more, or whoever does is silent; yields now and then until then."""
        seen, since = 0, monotonic()
        while not self.taken():
            if (sign := self._sign()) != seen:
                seen, since = sign, monotonic()
            if monotonic() - since >= SILENCE_SECONDS:
                return
            yield
            sleep(LOOK_SECONDS)

    def alive(self, steps: Generator[Step, None, Value]) -> Generator[Step, None, Value]:
        """The same steps, each a sign of life for those who wait."""

        def shown(step: Step) -> Step:
            self._show()
            return step

        return relay(steps, shown)

    def taken(self) -> bool:
        """Whether it is for this process to make; asked again after it was not."""
        if self._lock is not None and not self._is_ours:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError:  # a disk without locks
                pass
            self._is_ours = True
        return True

    def _sign(self) -> int:
        return os.fstat(self._lock).st_mtime_ns if self._lock is not None else 0

    def _show(self) -> None:
        if self._lock is not None:
            with suppress(OSError):
                os.utime(self._lock)


@contextmanager
def making(file: Path | None) -> Iterator[Making]:
    """Who makes this file, which may have no name on any disk."""
    lock = file and file.with_name(f"{file.name}.lock")
    opened = open_lock(lock) if lock else None
    one = Making(opened)
    try:
        yield one
    finally:
        if lock and opened is not None:
            with suppress(OSError):
                if one.taken():  # who still waits has it open, and finds the file
                    lock.unlink()
            os.close(opened)


def open_lock(lock: Path) -> int | None:
    if fcntl is None:
        return None
    with suppress(OSError):
        return os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    return None
