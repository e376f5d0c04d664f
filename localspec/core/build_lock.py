"""Lets one of several processes make a file, while the others wait as long as it shows signs of life.

The system releases the lock of a process that ends, however it ends. Without locks every process makes the file. Knows
nothing about what is made.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

from localspec.core.drain import relay
from localspec.core.process import LOOK_SECONDS

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SILENCE_SECONDS = 30.0  # of the process that makes it: then another does so, too
Step = TypeVar("Step")
Value = TypeVar("Value")


class BuildLock:
    """One process's part in making a file. `lock`: an open file; None without locks, when every process makes it."""

    def __init__(self, lock: int | None) -> None:
        self._lock = lock
        self._is_ours = lock is None

    def wait(self) -> Iterator[None]:
        """Yields now and then until no other process makes the file, or the one that does is silent."""
        seen, since = 0, monotonic()
        while not self.taken():
            if (sign := self._sign()) != seen:
                seen, since = sign, monotonic()
            if monotonic() - since >= SILENCE_SECONDS:
                return
            yield
            sleep(LOOK_SECONDS)

    def alive(self, steps: Generator[Step, None, Value]) -> Generator[Step, None, Value]:
        """Passes the steps on, each as a sign of life for waiting processes."""

        def shown(step: Step) -> Step:
            self._show()
            return step

        return relay(steps, shown)

    def taken(self) -> bool:
        """True once this process holds the lock; may be called again."""
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
def making(file: Path | None) -> Iterator[BuildLock]:
    """Opens the lock for a file to be made; None: a file without a name, made without a lock."""
    lock = file and file.with_name(f"{file.name}.lock")
    opened = open_lock(lock) if lock else None
    one = BuildLock(opened)
    try:
        yield one
    finally:
        if lock and opened is not None:
            with suppress(OSError):
                if one.taken():  # a waiting process has it open, and finds the file
                    lock.unlink()
            os.close(opened)


def open_lock(lock: Path) -> int | None:
    if fcntl is None:
        return None
    with suppress(OSError):
        return os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    return None
