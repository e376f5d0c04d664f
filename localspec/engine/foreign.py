"""What transformers raises because of what a stranger wrote, as one of ours. Imports nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from localspec.engine.arch import REPEAT
from localspec.engine.memory import is_out_of_memory
from localspec.errors import CheckpointError, LocalspecError, first_line


@contextmanager
def transformers_faults(name: str = "this configuration") -> Iterator[None]:
    """It cannot load what is called so, which is the model's fault; memory that runs out is not."""
    try:
        yield
    except LocalspecError:
        raise
    except Exception as fault:
        if is_out_of_memory(fault):
            raise
        raise CheckpointError(f"transformers cannot load {name} ({first_line(fault)[:200]}).", hint=REPEAT) from fault
