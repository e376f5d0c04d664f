"""The files of the weight cache, found by the model that they were made from. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from localspec.core import paths
from localspec.core.errors import UsageError

ENDING = ".safetensors"


def named_after(model: Path) -> str:
    """The first letters of the names of a model's files; `model` is its folder, or its GGUF file."""
    return sha256(str(model.resolve()).encode()).hexdigest()[:16]


def packed_files(models: Iterable[Path]) -> list[Path]:
    """The files that were made from any of these folders and GGUF files, which need not be there any more."""
    wanted = {named_after(model) for model in models}
    with suppress(OSError, UsageError):
        return [file for file in paths.packed_dir().glob(f"*{ENDING}") if file.name.partition("-")[0] in wanted]
    return []
