"""Recognises out-of-memory errors, and returns free memory to the system. Knows nothing about models."""

from __future__ import annotations

import gc

import torch

from localspec.core.main_memory import trim

WORDS = ("can't allocate memory", "CUDA error: out of memory")  # torch's messages for main memory and for pinned memory


def is_out_of_memory(fault: Exception) -> bool:
    """True for an out-of-memory error: devices have a class for it, main memory raises plain RuntimeErrors."""
    return isinstance(fault, torch.OutOfMemoryError | MemoryError) or any(words in str(fault) for words in WORDS)


def give_back() -> None:
    """Returns unused memory to the system: collects cycles and empties torch's reserve on a GPU."""
    gc.collect()
    torch.cuda.empty_cache()  # does nothing where CUDA is not in use
    trim()
