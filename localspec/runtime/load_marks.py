"""Marks the models that a running localspec has loaded, so that their files are not deleted under it.

A mark is a lock on a small file of the state folder, which names the model's path; it ends with the process. Knows
nothing about models.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from localspec.core import paths
from localspec.core.errors import UsageError
from localspec.core.locks import Lock, lock
from localspec.core.plain_file import read_small


def mark(model: Path) -> Lock | None:
    """Marks a model's folder or file as loaded until the lock is closed; None where the state folder cannot be
    written."""
    path = str(model.absolute())
    with suppress(OSError, UsageError):
        file = paths.loaded_dir() / f"{sha256(path.encode()).hexdigest()[:32]}.lock"
        file.write_text(path, encoding="utf-8")
        return lock(file, shared=True)
    return None


def loaded() -> list[Path]:
    """The models that some localspec of this user has loaded now."""
    found = []
    with suppress(OSError, UsageError):
        for file in sorted(paths.loaded_dir().glob("*.lock")):
            if (free := lock(file)) is None:
                found.append(Path(read_small(file).decode()))
            else:
                free.close()
    return found


def is_loaded(folder: Path) -> bool:
    """Whether a model in this folder, or below it, is loaded."""
    inside = folder.absolute()
    return any(model == inside or inside in model.parents for model in loaded())
