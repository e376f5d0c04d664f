"""Repositories that Hugging Face's own programs have fetched to this machine, by name. Asks nobody, fetches nothing."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

REPOSITORY = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")
COMMIT = re.compile(r"[0-9a-f]{40}")
MODELS = "models--"


def folder() -> Path:
    """Where the cache is, by the hub's own rules."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if chosen := os.environ.get(variable):
            return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = Path(os.environ.get("HF_HOME") or f"{caches}/huggingface")
    with suppress(RuntimeError):  # there is no home
        home = home.expanduser()
    return home / "hub"


def snapshot(repository: str) -> Path | None:
    """The files of its `main` as they were last fetched; None if they were not."""
    if not REPOSITORY.fullmatch(repository):
        return None
    kept = folder() / (MODELS + repository.replace("/", "--"))
    try:
        commit = (kept / "refs" / "main").read_text(encoding="ascii").strip()
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
    names = (name.removeprefix(MODELS).replace("--", "/", 1) for name in kept)
    return [name for name in names if snapshot(name)]
