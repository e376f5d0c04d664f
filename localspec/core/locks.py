"""A lock that a process holds by having a file open: the system releases it when the process ends, however it ends.

Where there are no locks (Windows, some disks) everyone gets one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Lock:
    """Held until it is closed or the process ends. `fd` may be handed to a child, which then holds it, too."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        """Release it. Twice does no harm."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    def __del__(self) -> None:
        self.close()


def is_held(file: Path) -> bool | None:
    """Whether a process holds the lock of this file, which is not made; None where that cannot be known."""
    if fcntl is None:
        return None
    try:
        fd = os.open(file, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


def lock(file: Path, *, shared: bool = False) -> Lock | None:
    """Takes the lock of this file, which is made if need be; None where another process holds it. Several may share
    one. OSError where the file cannot be made."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    taken = Lock(fd)
    if fcntl is None:
        return taken
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        taken.close()
        return None
    except OSError:  # a disk without locks
        return taken
    return taken
