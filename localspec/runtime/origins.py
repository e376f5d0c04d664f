"""Finds where a model on this machine comes from: the program whose folder it is in, and the commit. Opens no file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from localspec.core import paths
from localspec.models import hub_cache
from localspec.models.gguf.stores import HUGGING_FACE, LLAMA_CPP, LM_STUDIO, OLLAMA

BUILT_IN, HUB, FOLDER, FILE = "built in", "Hugging Face", "a folder", "a file"
PROGRAMS = {OLLAMA: "Ollama", LM_STUDIO: "LM Studio", LLAMA_CPP: "llama.cpp", HUGGING_FACE: HUB}


class ModelOrigin(NamedTuple):
    """`commit` and `repo` are "" for what the hub's programs have not fetched."""

    words: str
    repo: str = ""
    commit: str = ""


UNKNOWN = ModelOrigin("")


def origin_of(name: str, path: Path) -> ModelOrigin:
    """`name` is what loads it: for other programs' files it begins with the program's."""
    if path.is_relative_to(paths.packaged("assets")):
        return ModelOrigin(BUILT_IN)
    repo, commit = hub_cache.fetched_from(path)
    if repo:
        return ModelOrigin(HUB, repo, commit)
    return ModelOrigin(PROGRAMS.get(name.partition(":")[0], FILE if path.is_file() else FOLDER))
