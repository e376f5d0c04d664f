"""Finds repositories in Hugging Face's cache on this machine, by name. Uses no network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from localspec.core.plain_file import read_small

REPOSITORY = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")
COMMIT = re.compile(r"[0-9a-f]{40}")
REVISION = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)*")
MODELS, MAIN = "models--", "main"
WEIGHTS = (".safetensors", ".gguf")
SHORT_COMMIT = 7  # letters of a commit that are shown, as git shows them


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


def repository(name: str) -> str:
    """The repository of a folder in the cache. A model's own name may contain two dashes."""
    return name.removeprefix(MODELS).replace("--", "/", 1)


def snapshot(name: str, commit: str | None = None) -> Path | None:
    """The folder with the files of a repository at this commit, else at the last downloaded one of its branch: of
    ORG/NAME its `main`, of ORG/NAME@REV that branch, tag or commit. None if there is none."""
    repository, _, revision = name.partition("@")
    if not REPOSITORY.fullmatch(repository):
        return None
    commit = commit or commit_of(repository, revision or MAIN)
    files = kept(repository) / "snapshots" / commit
    return files if COMMIT.fullmatch(commit) and files.is_dir() else None


def has_version(repository: str) -> bool:
    """Whether more of any commit of a repository is linked than a download links before its weights: small files, which
    git itself keeps. A commit that was downloaded by its hash is on no branch."""
    linked = (kept(repository) / "snapshots").rglob("*")
    return any(not is_begun_with(path) for path in linked if path.is_symlink() or not path.is_dir())


def is_begun_with(path: Path) -> bool:
    """Whether this is a link to a file that git keeps, and not weights."""
    if path.suffix in WEIGHTS or not path.is_symlink():
        return False
    return bool(COMMIT.fullmatch(os.path.basename(os.readlink(path))))  # git names files and commits by the same hash


def kept(repository: str) -> Path:
    """The folder of a repository in the cache, whether there is one or not."""
    return folder() / (MODELS + repository.replace("/", "--"))


def fetched_from(path: Path) -> tuple[str, str]:
    """The repository and commit of a path in the cache; "" for any other."""
    inside = path.parts[len(folder().parts) :] if path.is_relative_to(folder()) else ()
    if len(inside) < 3 or inside[1] != "snapshots":
        return "", ""
    return repository(inside[0]), inside[2]


def path_inside(path: Path) -> str:
    """The path in its repository of a file in the cache; "" for any other."""
    return "/".join(path.parts[len(folder().parts) + 3 :]) if fetched_from(path)[0] else ""


def commit_of(repository: str, revision: str = MAIN) -> str:
    """The commit that a branch or tag was when it was last downloaded; a commit is itself. "" for what is not here."""
    if COMMIT.fullmatch(revision):
        return revision
    if not REVISION.fullmatch(revision):
        return ""
    try:
        return read_small(kept(repository) / "refs" / revision).decode("ascii").strip()
    except (OSError, ValueError):
        return ""


def folders() -> list[str]:
    """The repositories of models that have a folder in the cache, complete or not."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder()) if entry.name.startswith(MODELS))
    except OSError:
        return []
    return [repository(name) for name in names]


def contents() -> dict[str, frozenset[tuple[str, int]]]:
    """The files of all versions of each repository, and its references: by path, with when each was written. It differs
    where anything was fetched, named or deleted."""
    return {name: frozenset(written_in(kept(name))) for name in folders()}


def written_in(folder: Path) -> Iterator[tuple[str, int]]:
    """The files of a repository's versions and its references, without its blobs."""
    for part in ("snapshots", "refs"):
        for at, _, names in os.walk(folder / part):
            for name in names:
                with suppress(OSError):
                    path = os.path.join(at, name)
                    yield path, os.lstat(path).st_mtime_ns


def repositories() -> list[str]:
    """The cached repositories of models."""
    return [name for name in folders() if snapshot(name)]
