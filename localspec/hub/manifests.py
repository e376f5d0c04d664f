"""What came with each complete download, and how it was asked for: one small JSON file a commit in the state folder.

Written when a download is complete, read to find what is missing later, and what is older. Knows no hashes and no
network.
"""

from __future__ import annotations

from collections.abc import Collection
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
from localspec.models import hub_cache


class Manifest(Record, frozen=True):
    """The paths of a repository's files that were downloaded, of all its variants. `by_commit`: it was asked for by its
    commit, or that is not known; else by a branch or tag, which may name another commit later."""

    files: tuple[str, ...]
    by_commit: bool = True


MANIFEST = msgspec.json.Decoder(Manifest)


def remember(repository: Repository, *, repairs: bool = False) -> None:
    """Notes that all its files are here. `repairs`: they were before, and stay for the reason that is known; for
    another program's commit its branch decides."""
    repo, commit = repository.repo, repository.commit
    before = read(repo, commit) or Manifest((), by_commit=repairs and hub_cache.commit_of(repo) != commit)
    names = sorted({*before.files, *(file.path for file in repository.files)})
    asked_by_commit = repository.revision == commit and not repairs
    write(repo, commit, Manifest(tuple(names), before.by_commit or asked_by_commit))


def remove(repo: str, gone: Collection[str]) -> None:
    """Notes that these are here no more, of any commit."""
    with suppress(OSError, LocalspecError):
        for kept in all_of(repo):
            with suppress(OSError, ValueError, RecursionError):
                before = MANIFEST.decode(read_small(kept))
                left = tuple(path for path in before.files if path not in gone)
                write_whole(kept, msgspec.json.encode(Manifest(left, before.by_commit)))


def replaced(repo: str, commit: str) -> None:
    """Notes that a branch or tag named this commit until now, whichever program downloaded it."""
    if hub_cache.COMMIT.fullmatch(commit) and not file(repo, commit).exists():
        write(repo, commit, Manifest((), by_commit=False))


def files_of(repo: str, commit: str) -> tuple[str, ...]:
    """The paths that came with a commit; empty where that is not known."""
    found = read(repo, commit)
    return found.files if found else ()


def is_of_a_branch(repo: str, commit: str) -> bool:
    """Whether a commit is known to be here because a branch or tag named it, and for no other reason."""
    found = read(repo, commit)
    return found is not None and not found.by_commit


def read(repo: str, commit: str) -> Manifest | None:
    try:
        return MANIFEST.decode(read_small(file(repo, commit)))
    except (OSError, ValueError, RecursionError, LocalspecError):
        return None


def write(repo: str, commit: str, manifest: Manifest) -> None:
    with suppress(OSError, LocalspecError):  # without it a check compares with the hub's list alone
        write_whole(file(repo, commit), msgspec.json.encode(manifest))


def forget(repo: str, commit: str = "*") -> None:
    """Deletes the repository's manifests, or that of this commit."""
    with suppress(OSError, LocalspecError):
        for kept in all_of(repo, commit):
            kept.unlink(missing_ok=True)


def all_of(repo: str, commit: str = "*") -> list[Path]:
    return list(paths.pulled_dir().glob(f"{blobs.repo_dir(repo).name}@{commit}.json"))


def file(repo: str, commit: str) -> Path:
    return paths.pulled_dir() / f"{blobs.repo_dir(repo).name}@{commit}.json"
