"""An error as the event that a reader sees, and the log that has the rest of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from localspec.core import paths
from localspec.core.errors import ContextOverflow, LocalspecError, UsageError
from localspec.core.events import Failure
from localspec.core.plain_file import plain


def failure(fault: Exception) -> Failure:
    """An error as a reader sees it; the traceback of a foreign one goes to the log."""
    if isinstance(fault, LocalspecError):
        over = (fault.turns_over, fault.prompt_n) if isinstance(fault, ContextOverflow) else ()
        return Failure(fault.code, fault.message, fault.hint, fault.exit_code, *over)
    import traceback

    traceback.print_exception(fault)
    log = log_file()
    details = f"Details are in {log}." if log != os.devnull else "Set LOCALSPEC_STATE_DIR to a folder to see details."
    return Failure("engine", f"The engine failed ({type(fault).__name__}).", details, 1)


def log_file(log_of: Callable[[], Path] = paths.engine_log) -> str:
    """The file that the child prints into; os.devnull without a folder to write in."""
    try:
        log = log_of()
        if log.exists():
            plain(log)
        log.open("a").close()
    except (OSError, UsageError):
        return os.devnull
    return str(log)
