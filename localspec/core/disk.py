"""Free space on the disk that holds a folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

SPARE_BYTES = 1 << 30  # that a download leaves free
CACHE_SPARE_BYTES = 256 << 20  # that the weight cache leaves free: with less it is not written


def free_bytes(folder: Path) -> int:
    """Free bytes of the disk that a folder is on, or will be."""
    above = (folder.absolute(), *folder.absolute().parents)
    return shutil.disk_usage(next(filter(os.path.exists, above))).free
