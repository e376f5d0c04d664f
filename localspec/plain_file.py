"""Files that are files: a fifo instead of one would be waited for, for ever, and a device may have no end."""

from __future__ import annotations

import errno
import stat
from pathlib import Path


def plain(file: Path) -> Path:
    """The same path, to be read; OSError where it is no regular file, or a link to none."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a file", str(file))
    return file
