"""transformers kept from what is not ours: what it raises becomes one of our errors, and it fetches nothing.

Imports nothing of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from localspec.core.errors import CheckpointError, LocalspecError, first_line
from localspec.engine.arch import ELSE
from localspec.engine.memory import is_out_of_memory


def keep_offline() -> None:
    """Before transformers is imported: it asks no network, and finds no package that fetches code and runs it."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.modules.setdefault("kernels", None)  # type: ignore[arg-type] # as Python has it for what cannot be imported


@contextmanager
def transformers_faults(name: str = "this configuration") -> Iterator[None]:
    """It cannot load what is called so, which is the model's fault; memory that runs out is not."""
    with caught(f"transformers cannot load {name}", hint=ELSE):
        yield


@contextmanager
def own_faults() -> Iterator[None]:
    """It cannot load what we have made of a configuration that it can: that is our fault, and no file's."""
    hint = f"The fault is localspec's: please report this model. {ELSE}"
    with caught("localspec cannot check this configuration, because its small copy of it fails", hint=hint):
        yield


@contextmanager
def caught(message: str, *, hint: str) -> Iterator[None]:
    try:
        yield
    except LocalspecError:
        raise
    except Exception as fault:
        if is_out_of_memory(fault):
            raise
        raise CheckpointError(f"{message} ({first_line(fault)[:200]}).", hint=hint) from fault
