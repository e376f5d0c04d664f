"""Replaces a file so that it is the old one or the new one, never half of it, whoever stops the program."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from localspec.core.errors import FULL, DoesNotFit, UsageError


def write_whole(path: Path, content: bytes) -> None:
    """Any error leaves the old file and nothing beside it. The folder is made where it is missing."""
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def save(file: Path, text: str) -> None:
    """The whole file or none, and never over one that is there; what is no plain file (/dev/stdout, a pipe) is written
    to. No folder is made: one that is not there is more likely mistyped than wished for."""
    if not file.parent.is_dir():
        raise UsageError(f"There is no folder '{file.parent}'.", hint="Make it, or name another FILE.")
    try:
        if file.is_file():
            raise UsageError(f"'{file}' is there already.", hint="Delete it, or name another FILE.")
        if file.exists():
            file.write_bytes(text.encode())
        else:
            write_whole(file.resolve(), text.encode())
    except BrokenPipeError:
        raise  # the reader of /dev/stdout has left, which is no error
    except OSError as fault:
        if fault.errno in FULL:
            raise DoesNotFit(
                f"The disk has no room for '{file}' ({fault.strerror}).", hint="Free some space, or name another FILE."
            ) from fault
        raise UsageError(f"'{file}' cannot be written ({fault.strerror}).", hint="Name another FILE.") from fault
