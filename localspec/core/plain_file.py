"""Regular files only: opening a fifo would wait for ever, and a device may have no end."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

MOST_BYTES = 1 << 20


def plain(file: Path) -> Path:
    """The path; OSError unless it is a regular file, or a link to one."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a file", str(file))
    return file


def read_small(file: Path) -> bytes:
    """The content of a small regular file; OSError where it is larger than MOST_BYTES."""
    if (size := plain(file).stat().st_size) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES:,} bytes", str(file))
    with file.open("rb") as opened:
        return opened.read(size)
