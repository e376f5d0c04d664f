"""Finds repositories in Hugging Face's cache on this machine, by name. Uses no network."""

from __future__ import annotations

import os
import re
from pathlib import Path

from localspec.core.plain_file import read_small

REPOSITORY = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")
COMMIT = re.compile(r"[0-9a-f]{40}")
MODELS = "models--"


def folder() -> Path:
    """The folder of the cache, by the hub's own rules."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if chosen := os.environ.get(variable):
            return expanded(chosen)
    return home() / "hub"


def home() -> Path:
    """The folder of Hugging Face's programs."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expanded(os.environ.get("HF_HOME") or f"{caches}/huggingface")


def expanded(written: str) -> Path:
    """The path with ~ and $VARIABLE expanded as in a shell."""
    return Path(os.path.expandvars(os.path.expanduser(written)))


def repository(kept: str) -> str:
    """The repository of a folder in the cache. A model's own name may contain two dashes."""
    return kept.removeprefix(MODELS).replace("--", "/", 1)


def snapshot(repository: str) -> Path | None:
    """The folder with the last downloaded files of its `main`; None if there is none."""
    if not REPOSITORY.fullmatch(repository):
        return None
    kept = folder() / (MODELS + repository.replace("/", "--"))
    try:
        commit = read_small(kept / "refs" / "main").decode("ascii").strip()
    except (OSError, ValueError):
        return None
    files = kept / "snapshots" / commit
    return files if COMMIT.fullmatch(commit) and files.is_dir() else None


def repositories() -> list[str]:
    """The cached repositories of models."""
    try:
        kept = sorted(entry.name for entry in os.scandir(folder()) if entry.name.startswith(MODELS))
    except OSError:
        return []
    return [name for name in map(repository, kept) if snapshot(name)]
