"""Repositories that Hugging Face's own programs have fetched to this machine, by name. Asks nobody, fetches nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path

from localspec.core.plain_file import read_small

REPOSITORY = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")
COMMIT = re.compile(r"[0-9a-f]{40}")
MODELS = "models--"


def folder() -> Path:
    """Where the cache is, by the hub's own rules."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if chosen := os.environ.get(variable):
            return expanded(chosen)
    return home() / "hub"


def home() -> Path:
    """Where Hugging Face's programs keep all that is theirs."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expanded(os.environ.get("HF_HOME") or f"{caches}/huggingface")


def expanded(written: str) -> Path:
    """~ and $VARIABLE mean what they do in a shell."""
    return Path(os.path.expandvars(os.path.expanduser(written)))


def repository(kept: str) -> str:
    """What a folder of the cache holds, by the folder's name. A model's own name may have two dashes."""
    return kept.removeprefix(MODELS).replace("--", "/", 1)


def snapshot(repository: str) -> Path | None:
    """The files of its `main` as they were last fetched; None if they were not."""
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
    """Of models, those that are there."""
    try:
        kept = sorted(entry.name for entry in os.scandir(folder()) if entry.name.startswith(MODELS))
    except OSError:
        return []
    return [name for name in map(repository, kept) if snapshot(name)]
