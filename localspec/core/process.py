"""Which process this is, and whether another still runs: a number alone is given away again. Imports psutil late."""

from __future__ import annotations

from localspec.core.events import Record

LOOK_SECONDS = 0.2  # between two looks at what another process does
STOP_SECONDS = 15.0  # within which one that is asked to end does
SAME_START_SECONDS = 2.0  # the clock may be set between two looks


class Process(Record, frozen=True):
    """A process by its number and when it began."""

    pid: int
    began: float

    @property
    def is_alive(self) -> bool:
        import psutil

        try:
            found = psutil.Process(self.pid)
            ended = found.status() == psutil.STATUS_ZOMBIE
            return not ended and abs(found.create_time() - self.began) < SAME_START_SECONDS
        except (psutil.Error, ValueError, OverflowError):
            return False


def this() -> Process:
    import psutil

    own = psutil.Process()
    return Process(own.pid, own.create_time())


def process_of(pid: int) -> Process | None:
    """The one with this number; None if it has ended."""
    import psutil

    try:
        return Process(pid, psutil.Process(pid).create_time())
    except psutil.Error:
        return None
