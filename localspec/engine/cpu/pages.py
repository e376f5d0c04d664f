"""Memory in large pages: a forward streams through gigabytes, and 4 KB at a time costs it four hundredths of its speed
(docs/measurements.md). Knows nothing about what lies there.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Final

from torch import Tensor

ADVICE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux alone has it


def in_large_pages(room: Tensor) -> Tensor:
    """The same room, untouched as yet, for whose pages the system is asked to be large; it may refuse."""
    first = -(-room.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    inside = room.data_ptr() + room.nbytes - first
    if ADVICE is not None and inside > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(inside), ADVICE)
    return room
