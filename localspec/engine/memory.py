"""Memory that runs out, and memory that is given back. Knows nothing about who used it."""

from __future__ import annotations

import gc

import torch


def is_out_of_memory(fault: Exception) -> bool:
    """Devices have an error for it; torch's allocator for main memory raises a plain RuntimeError."""
    return isinstance(fault, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(fault)


def give_back() -> None:
    """What nobody holds any more is free for others: circles are broken, torch's own reserve on a GPU is emptied."""
    gc.collect()
    torch.cuda.empty_cache()  # nothing, where CUDA is not in use
