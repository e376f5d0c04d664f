"""Where localspec keeps files, whether it can, and how much is there. Makes none of the folders."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from localspec.cli.doctor.records import Folder, Kept
from localspec.core import paths


def look() -> tuple[Folder, ...]:
    return tuple(folder(purpose, paths.variable(purpose)) for purpose in paths.PURPOSES)


def folder(purpose: str, variable: str) -> Folder:
    path = paths.folder(purpose).absolute()
    there = nearest(path)
    return Folder(purpose, str(path), variable, os.path.isdir(path), free_bytes(there), fault_of(there))


def nearest(path: Path) -> Path:
    """The folder, or the one it would be made in."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def free_bytes(there: Path) -> int | None:
    try:
        return shutil.disk_usage(there).free
    except OSError:
        return None


def fault_of(there: Path) -> str:
    """Why no file can be made in it. The attempt is the only test that a read-only disk and root agree on."""
    try:
        with tempfile.TemporaryFile(dir=there):
            return ""
    except OSError as fault:
        return fault.strerror or str(fault)


def kept() -> tuple[Kept, ...]:
    cache = paths.folder("cache")
    return (
        size("packed and quantised models", cache / paths.PACKED, "*"),
        size("compiled code", cache / paths.COMPILED, "*"),
        size("chats", paths.folder("data"), f"{paths.HISTORY}*"),
    )


def size(kind: str, place: Path, pattern: str) -> Kept:
    sizes = []
    with suppress(OSError):
        for file in place.glob(pattern):
            with suppress(OSError):  # gone meanwhile
                sizes.append(file.stat().st_size)
    return Kept(kind, len(sizes), sum(sizes))
