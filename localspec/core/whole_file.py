"""Writes files atomically: afterwards there is the old content or the new one, never half of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from localspec.core.errors import FULL, DoesNotFit, UsageError


def write_whole(path: Path, content: bytes) -> None:
    """Replaces a file atomically; an error leaves the old file and nothing beside it. Creates a missing folder."""
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def check_new(file: Path) -> None:
    """Refuses a file that exists, and one in a folder that does not: it is probably mistyped."""
    if not file.parent.is_dir():
        raise UsageError(f"There is no folder '{file.parent}'.", hint="Create it, or name another FILE.")
    if file.is_file():
        raise UsageError(f"'{file}' already exists.", hint="Delete it, or name another FILE.")


def save(file: Path, text: str) -> None:
    """Writes a new file, whole or not at all, never over an existing one; /dev/stdout, a pipe and the like are written
    to. Creates no folder."""
    with cannot_be_written(file):
        check_new(file)
        if file.exists():
            file.write_bytes(text.encode())
        else:
            write_whole(file.resolve(), text.encode())


def create(file: Path) -> FileIO:
    """Opens a new file that only its owner can read, to write it piece by piece; as in `save`, never an existing one.
    `cannot_be_written` belongs around what is written."""
    with cannot_be_written(file):
        check_new(file)
        flags = os.O_WRONLY | (0 if file.exists() else os.O_CREAT | os.O_EXCL)
        return os.fdopen(os.open(file, flags, 0o600), "wb", buffering=0)


@contextmanager
def cannot_be_written(file: Path) -> Iterator[None]:
    """Turns the faults of writing a file that the user named into sentences."""
    if "\0" in str(file):
        raise UsageError("A file's name cannot contain a null character.", hint="Choose another FILE.")
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of /dev/stdout has closed it, which is not an error
    except OSError as fault:
        if fault.errno in FULL:
            raise DoesNotFit(
                f"'{file}' cannot be written: the disk is full ({fault.strerror}).",
                hint="Free some space, or name another FILE.",
            ) from fault
        raise UsageError(f"'{file}' cannot be written ({fault.strerror}).", hint="Choose another FILE.") from fault
