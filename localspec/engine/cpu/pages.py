"""Requests huge pages for memory: a forward reads gigabytes, and pages of 4 KB cost it 4 % of its speed
(docs/measurements-archive.md). Knows nothing about what the memory holds.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Final

from torch import Tensor

ADVICE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux only


def in_large_pages(buffer: Tensor) -> Tensor:
    """The buffer, not yet written to, after asking the system for huge pages; it may refuse."""
    first = -(-buffer.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    inside = buffer.data_ptr() + buffer.nbytes - first
    if ADVICE is not None and inside > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(inside), ADVICE)
    return buffer
