"""Keeps transformers offline, and turns what it raises into our errors.

Imports nothing of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from localspec.core.errors import CHOOSE_ANOTHER, CheckpointError, LocalspecError, first_line
from localspec.engine.memory import is_out_of_memory


def keep_offline() -> None:
    """Sets transformers offline before its import, and hides the package that downloads code and runs it."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.modules.setdefault("kernels", None)  # type: ignore[arg-type] # how Python marks what cannot be imported


@contextmanager
def transformers_faults(name: str = "this configuration") -> Iterator[None]:
    """Raises a failure of transformers as a CheckpointError about `name`; out-of-memory errors pass."""
    with caught(f"transformers cannot load {name}", hint=CHOOSE_ANOTHER):
        yield


@contextmanager
def own_faults() -> Iterator[None]:
    """Raises a failure on a configuration that we have derived: that is our bug, not a fault of the file."""
    hint = f"This is a bug in localspec: please report this model. {CHOOSE_ANOTHER}"
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
