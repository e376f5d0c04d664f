"""Memory that runs out, and memory that is given back. Knows nothing about who used it."""

from __future__ import annotations

import gc

import torch

from localspec.core.main_memory import trim

WORDS = ("can't allocate memory", "CUDA error: out of memory")  # of torch's allocator for main memory, and of pinned


def is_out_of_memory(fault: Exception) -> bool:
    """Devices have an error for it; main memory's are plain RuntimeErrors."""
    return isinstance(fault, torch.OutOfMemoryError | MemoryError) or any(words in str(fault) for words in WORDS)


def give_back() -> None:
    """What nobody holds any more is free for others: circles are broken, torch's own reserve on a GPU is emptied."""
    gc.collect()
    torch.cuda.empty_cache()  # nothing, where CUDA is not in use
    trim()
