"""The files that came with each complete download: one small JSON file a commit in the state folder.

Written when a download is complete, read to find what is missing later. Knows no hashes and no network.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from localspec.core import paths
from localspec.core.errors import LocalspecError
from localspec.core.events import Record
from localspec.core.plain_file import read_small
from localspec.core.whole_file import write_whole
from localspec.hub import blobs
from localspec.hub.records import Repository


class Manifest(Record, frozen=True):
    """The paths of a repository's files that were downloaded, of all its variants."""

    files: tuple[str, ...]


MANIFEST = msgspec.json.Decoder(Manifest)


def remember(repository: Repository) -> None:
    """Notes that all its files are here."""
    repo, commit = repository.repo, repository.commit
    names = sorted({*files_of(repo, commit), *(file.path for file in repository.files)})
    with suppress(OSError, LocalspecError):  # without it a check compares with the hub's list alone
        write_whole(file(repo, commit), msgspec.json.encode(Manifest(tuple(names))))


def files_of(repo: str, commit: str) -> tuple[str, ...]:
    """The paths that came with a commit; empty where that is not known."""
    try:
        return MANIFEST.decode(read_small(file(repo, commit))).files
    except (OSError, ValueError, RecursionError, LocalspecError):
        return ()


def forget(repo: str) -> None:
    """Nothing of it is here any more."""
    with suppress(OSError, LocalspecError):
        for kept in paths.pulled_dir().glob(f"{blobs.repo_dir(repo).name}@*.json"):
            kept.unlink(missing_ok=True)


def file(repo: str, commit: str) -> Path:
    return paths.pulled_dir() / f"{blobs.repo_dir(repo).name}@{commit}.json"
