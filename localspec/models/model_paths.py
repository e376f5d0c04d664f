"""What a path on this machine means as a model: a folder, a GGUF file, or the folder whose safetensors file it names.

Looks at names, and at a file's first bytes. Knows nothing about the catalogue or the network.
"""

from __future__ import annotations

import os
from pathlib import Path

from localspec.core import paths
from localspec.core.errors import CheckpointError, NotDownloaded, UsageError
from localspec.core.sanitize import one_line
from localspec.models.gguf.header import MAGIC
from localspec.models.gguf.quants import ENDING, PART
from localspec.models.gguf.stores import PROJECTOR

CONFIG, SAFETENSORS, INDEX = "config.json", ".safetensors", ".safetensors.index.json"
WEIGHTS = (ENDING, SAFETENSORS, INDEX)  # endings by which a name can only mean a file
MOST_SHOWN = 6  # files in a message
READS = "Use a GGUF file, or a folder with config.json and safetensors files."


def local_path(name: str) -> Path | None:
    """The folder or GGUF file that a name means; None if it names nothing on this machine."""
    path = paths.expanded(name)
    if not name or not os.path.exists(path):  # False, too, for what cannot be a path
        return None
    if os.path.isdir(path):
        return in_folder(name, path)
    if path.name.lower().endswith((SAFETENSORS, INDEX)):
        return of_safetensors(name, path)
    if path.suffix.lower() == ENDING:
        return path
    if path.name == name:  # a word, that happens to be a file's name too
        return None
    if not begins_as_gguf(path):  # Ollama's files have no ending
        raise no_model(name)
    return path


def begins_as_gguf(file: Path) -> bool:
    """Whether the file may be a model; one that cannot be read may."""
    if not file.is_file():  # a pipe would wait
        return True
    try:
        with file.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return True


def require_model(name: str) -> None:
    """NotDownloaded for a folder or file of this name that is there and can be no model: seen before more is opened."""
    path = local_path(name)
    if path is None:
        return
    if not (os.path.exists(path / CONFIG) if path.is_dir() else begins_as_gguf(path)):
        raise no_model(name)


def no_model(name: str) -> NotDownloaded:
    return NotDownloaded(f"{name[:200]} is not a model that localspec can read.", hint=READS)


def in_folder(name: str, folder: Path) -> Path:
    """The folder, or the only GGUF model in one without a configuration."""
    if os.path.exists(folder / CONFIG) or not (files := gguf_files(folder)):
        return folder
    if len(files) > 1:
        shown = ", ".join(one_line(str(Path(name) / file.name)) for file in files[:MOST_SHOWN])
        raise UsageError(f"{one_line(name)[:200]} has {len(files)} GGUF models.", hint=f"Name one: {shown}")
    return files[0]


def gguf_files(folder: Path) -> list[Path]:
    """The GGUF models right in a folder; of a split one its first part."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.lower().endswith(ENDING))
    except OSError:
        return []
    models = [name for name in names if PROJECTOR not in name.lower()]
    parts = {name: PART.search(name[: -len(ENDING)]) for name in models}
    return [folder / name for name, part in parts.items() if part is None or int(part[1]) == 1]


def of_safetensors(name: str, file: Path) -> Path:
    """The folder of the model that this file belongs to."""
    if os.path.exists(file.absolute().parent / CONFIG):
        return file.absolute().parent
    message = f"{one_line(name)[:200]} has weights only: there is no config.json beside it."
    raise CheckpointError(message, hint="Give the folder of the whole model.")


def missing_file(name: str) -> NotDownloaded:
    """The error for a name that can only be a file's, and is no model's."""
    if os.path.exists(paths.expanded(name)):
        return no_model(name)
    return NotDownloaded(f"There is no file {name[:200]}.", hint=READS)


def means_file(name: str) -> bool:
    """True for a name that can only mean a file: by its ending, or because it is written as one that is there."""
    written_as_file = "." in name or Path(name).name != name
    return name.lower().endswith(WEIGHTS) or (written_as_file and os.path.isfile(paths.expanded(name)))
