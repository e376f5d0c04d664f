"""Finds GGUF files of other programs on this machine, with a name for each: LM Studio, Ollama, llama.cpp, Hugging Face.

Reads folders and Ollama's manifests; opens no model, and writes or moves nothing. Bounded in depth and number, since
these folders may contain anything. Knows nothing about what the files contain.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any  # Any: JSON of another program

from localspec.core import strict_json
from localspec.core.errors import CheckpointError
from localspec.models import hub_cache
from localspec.models.gguf.quants import ENDING, PART, quant_of

OLLAMA, LM_STUDIO, LLAMA_CPP, HUGGING_FACE = "ollama", "lmstudio", "llama.cpp", "hf"
STORES = (OLLAMA, LM_STUDIO, LLAMA_CPP, HUGGING_FACE)
REGISTRY, LIBRARY, LATEST = "registry.ollama.ai", "library", "latest"  # what Ollama leaves out of a name
OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")  # where it runs as a service
LAYER = "application/vnd.ollama.image."
DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
PROJECTOR = "mmproj"  # in the names of files for images or sound
MAX_DEPTH = 4  # of folders; LM Studio has two, and some repositories two more
MAX_ENTRIES = 20_000  # of a store, folders included
MAX_MANIFEST_BYTES = 1 << 20
MAX_SETTINGS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A GGUF model of another program; `name` loads it. `file` is its first part if it is split. `by_path`: of one of
    the hub, its name by its file's path, which loads it too."""

    name: str
    file: Path
    by_path: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, self.by_path) if self.by_path not in ("", self.name) else (self.name,)


def kept() -> list[GgufModel]:
    """All GGUF models of other programs, each once, store by store."""
    found = {one.name: one for one in (*_ollama(), *_lm_studio(), *_llama_cpp(), *_hugging_face())}
    return [one for name, one in found.items() if name.isprintable()]


def find(name: str) -> Path | None:
    """The file of this name; without a tag, Ollama's latest."""
    if name.partition(":")[0] not in STORES:
        return None
    wanted = {name, f"{name}:{LATEST}"}
    return next((one.file for one in kept() if not wanted.isdisjoint(one.names)), None)


def in_repository(name: str) -> list[GgufModel]:
    """The GGUF models of a cached repository that ORG/NAME means, or ORG/NAME:Q4_K_M: by their last words."""
    repository, _, variant = name.partition(":")
    variant = variant[: -len(ENDING)] if variant.lower().endswith(ENDING) else variant
    ending = re.compile(rf"[-._/]{re.escape(variant)}$" if variant else "", re.IGNORECASE)
    found = list(_of_repository(repository))
    exact = [one for one in found if one.name.lower() == name.lower()]
    return exact or [one for one in found if ending.search(one.by_path)]


def home() -> Path:
    return Path.home()


def _ollama() -> Iterator[GgufModel]:
    chosen = os.environ.get("OLLAMA_MODELS")
    folders = [hub_cache.expanded(chosen)] if chosen else [home() / ".ollama" / "models", OLLAMA_SERVICE]
    for folder in folders:
        manifests = folder / "manifests"
        for file in _files(manifests):
            parts = file.relative_to(manifests).parts
            if len(parts) == MAX_DEPTH and (blob := _blob(folder, file)):
                yield GgufModel(f"{OLLAMA}:{_ollama_name(*parts)}", blob)


def _ollama_name(host: str, owner: str, model: str, tag: str) -> str:
    before = "" if host == REGISTRY else f"{host}/"
    return f"{before}{'' if not before and owner == LIBRARY else f'{owner}/'}{model}:{tag}"


def _blob(folder: Path, manifest: Path) -> Path | None:
    """The weights that a manifest names, unless it has an adapter, or they are outside the store."""
    with suppress(CheckpointError):
        layers = strict_json.read_object(manifest, MAX_MANIFEST_BYTES).get("layers")
        digests = dict(_layer(layer) for layer in layers) if isinstance(layers, list) else {}
        digest = DIGEST.fullmatch(digests.get(f"{LAYER}model", ""))
        if digest and f"{LAYER}adapter" not in digests:
            blobs = (folder / "blobs" / f"sha256{sign}{digest[1]}" for sign in "-:")  # older versions used ":"
            return next(filter(os.path.isfile, blobs), None)
    return None


def _layer(layer: Any) -> tuple[str, str]:
    found = layer if isinstance(layer, dict) else {}
    return str(found.get("mediaType")), str(found.get("digest"))


def _lm_studio() -> Iterator[GgufModel]:
    homes = [home() / ".lmstudio", home() / ".cache" / "lm-studio"]
    with suppress(CheckpointError):
        homes.insert(0, Path(strict_json.read_text(home() / ".lmstudio-home-pointer", MAX_SETTINGS_BYTES).strip()))
    folders = [folder for one in homes for folder in (_downloads(one), one / "models") if folder]
    for folder in dict.fromkeys(map(_real, folders)):
        yield from _named(LM_STUDIO, folder)


def _downloads(lm_studio: Path) -> Path | None:
    """The folder for models in LM Studio's settings."""
    with suppress(CheckpointError):
        chosen = strict_json.read_object(lm_studio / "settings.json", MAX_SETTINGS_BYTES).get("downloadsFolder")
        if isinstance(chosen, str) and os.path.isabs(chosen) and "\0" not in chosen:
            return Path(chosen)
    return None


def _llama_cpp() -> Iterator[GgufModel]:
    if chosen := os.environ.get("LLAMA_CACHE"):
        folder = hub_cache.expanded(chosen)
    elif sys.platform == "darwin":
        folder = home() / "Library" / "Caches" / "llama.cpp"
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or home() / "AppData" / "Local") / "llama.cpp"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or home() / ".cache") / "llama.cpp"
    yield from _named(LLAMA_CPP, folder)


def _hugging_face() -> Iterator[GgufModel]:
    for repository in hub_cache.repositories():
        yield from _of_repository(repository)


def _of_repository(repository: str) -> Iterator[GgufModel]:
    """Named as they are pulled, ORG/NAME:Q4_K_M, where one model alone has that quantisation; else by their paths."""
    folder = hub_cache.snapshot(repository)
    found = list(_named(f"{HUGGING_FACE}:{repository}", folder, sign="/")) if folder else []
    quants = [quant_of(one.file.name) for one in found]
    for one, quant in zip(found, quants, strict=True):
        is_clear = bool(quant) and quants.count(quant) == 1
        yield GgufModel(f"{repository}:{quant}" if is_clear else one.name, one.file, one.name)


def _named(store: str, folder: Path, *, sign: str = ":") -> Iterator[GgufModel]:
    """The models in a folder, named by their paths in it without the ending."""
    for file in _files(folder):
        name = file.relative_to(folder).as_posix()
        if name.lower().endswith(ENDING) and PROJECTOR not in file.name.lower():
            part = PART.search(stem := name[: -len(ENDING)])
            if not part or int(part[1]) == 1:
                yield GgufModel(f"{store}{sign}{PART.sub('', stem)}", file)


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder, by name. A link to a folder is followed once."""
    return islice(_walk(folder, MAX_DEPTH, iter(range(MAX_ENTRIES)), set()), MAX_ENTRIES)


def _walk(folder: Path, depth: int, left: Iterator[int], seen: set[tuple[int, int]]) -> Iterator[Path]:
    with suppress(OSError, ValueError):
        state = os.stat(folder)
        if (state.st_dev, state.st_ino) in seen:
            return
        seen.add((state.st_dev, state.st_ino))
        with os.scandir(folder) as scanned:
            entries = [entry for entry, _ in zip(scanned, left, strict=False)]
        for entry in sorted(entries, key=lambda entry: entry.name):
            if _is_folder(entry):
                if depth > 1:
                    yield from _walk(folder / entry.name, depth - 1, left, seen)
            elif os.path.isfile(entry.path):
                yield folder / entry.name


def _is_folder(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return entry.is_dir()
    return False


def _real(folder: Path) -> Path:
    return Path(os.path.realpath(folder))
