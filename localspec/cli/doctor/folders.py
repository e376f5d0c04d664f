"""The folders of localspec, and the cache that `pull` fills: whether they are writable, and how much is stored.

Creates none of them."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from localspec.cli.doctor.records import FolderStatus, StoredFiles
from localspec.core import paths
from localspec.models import hub_cache


def look() -> tuple[FolderStatus, ...]:
    own = [folder(purpose, paths.folder(purpose), paths.variable(purpose)) for purpose in paths.PURPOSES]
    return (*own, folder("models", hub_cache.folder(), "HF_HUB_CACHE"))


def folder(purpose: str, path: Path, variable: str) -> FolderStatus:
    path = path.absolute()
    existing = nearest(path)
    return FolderStatus(purpose, str(path), variable, os.path.isdir(path), free_bytes(existing), write_fault(existing))


def nearest(path: Path) -> Path:
    """The folder, or the nearest existing one above it."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def write_fault(folder: Path) -> str:
    """Why no file can be created in the folder; "" if one can. Only an attempt tells, e.g. on a read-only disk."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as fault:
        return fault.strerror or str(fault)


def kept() -> tuple[StoredFiles, ...]:
    cache = paths.folder("cache")
    return (
        size("packed and quantised models", cache / paths.PACKED, "*"),
        size("compiled code", cache / paths.COMPILED, "*"),
        size("chats", paths.folder("data"), f"{paths.HISTORY}*"),
    )


def size(kind: str, folder: Path, pattern: str) -> StoredFiles:
    sizes = []
    with suppress(OSError):
        for file in folder.glob(pattern):
            with suppress(OSError):  # gone meanwhile
                sizes.append(file.stat().st_size)
    return StoredFiles(kind, len(sizes), sum(sizes))
