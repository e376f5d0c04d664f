"""The older commits of a repository on this machine, which no branch and no tag names any more, and what only they use.

What was pulled by its commit, or is named by models.toml, stays. Knows no network and not the hub's library.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from localspec.core.events import Record
from localspec.core.plain_file import read_small
from localspec.hub import manifests, pulls
from localspec.models import hub_cache
from localspec.models.catalog import Catalog
from localspec.models.catalog_file import ModelTable
from localspec.runtime.load_marks import is_loaded


class Older(Record, frozen=True):
    """Older commits of a repository, and the bytes that only they use."""

    repo: str
    commits: tuple[str, ...]
    num_bytes: int


def older() -> tuple[Older, ...]:
    """The older versions of all repositories that have any."""
    found = map(older_of, hub_cache.repositories())
    return tuple(one for one in found if one.commits)


def older_of(repo: str) -> Older:
    commits = older_commits(repo)
    return Older(repo, commits, sum(only_used_by(repo, commits).values()))


def older_commits(repo: str) -> tuple[str, ...]:
    """The commits that only an earlier pull of a branch or tag explains. None while a newer one is not complete, which
    may use their files, or has no weights: other programs let a branch name a commit of which they have fetched a few
    small files."""
    if len(here := commits_of(repo)) < 2 or pulls.known(repo):
        return ()
    named = referenced(repo)
    if not any(has_weights(snapshot(repo, commit)) for commit in named):
        return ()
    stays = {*named, *pinned()}
    found = (commit for commit in here if commit not in stays and manifests.is_of_a_branch(repo, commit))
    return tuple(commit for commit in found if not is_loaded(snapshot(repo, commit)))


def commits_of(repo: str) -> list[str]:
    with suppress(OSError):
        return sorted(filter(hub_cache.COMMIT.fullmatch, os.listdir(hub_cache.kept(repo) / "snapshots")))
    return []


def snapshot(repo: str, commit: str) -> Path:
    return hub_cache.kept(repo) / "snapshots" / commit


def referenced(repo: str) -> set[str]:
    """The commits that a branch, a tag or another reference names; none where one cannot be read, so that nothing is
    taken for older."""
    found = set()
    for file in (hub_cache.kept(repo) / "refs").rglob("*"):
        if not file.is_dir():
            try:
                found.add(read_small(file).decode("ascii").strip())
            except (OSError, ValueError):
                return set()
    return found


def pinned() -> set[str]:
    """The commits that models.toml names, of whatever repository: of a model, a drafter, or in a path."""
    return {commit for table in Catalog.load().models.values() for commit in named_in(table)}


def named_in(table: ModelTable) -> Iterator[str]:
    drafts = (table.draft, *table.drafts.values())
    for words in (table.revision, table.path, *(draft.model for draft in drafts if draft)):
        yield from hub_cache.COMMIT.findall(words or "")


def has_weights(folder: Path) -> bool:
    return any(path.suffix in hub_cache.WEIGHTS and path.exists() for path in folder.rglob("*"))


def only_used_by(repo: str, commits: Iterable[str]) -> dict[Path, int]:
    """The files on the disk that only these commits of a repository use, with their bytes. What it shares with other
    repositories counts nothing."""
    theirs, others = set[Path](), set[Path]()
    for commit in commits_of(repo):
        (theirs if commit in commits else others).update(stored(snapshot(repo, commit)))
    return {path: own_size(path) for path in theirs - others}


def stored(folder: Path) -> Iterator[Path]:
    """The file behind each name of a snapshot: what its link leads to, or itself."""
    for at, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield behind(Path(at, name))


def behind(path: Path) -> Path:
    """What a link leads to, or the file itself."""
    return Path(os.path.normpath(path.parent / os.readlink(path))) if path.is_symlink() else path


def own_size(path: Path) -> int:
    """The bytes of a file; 0 for a link."""
    with suppress(OSError):
        state = path.lstat()
        return state.st_size if S_ISREG(state.st_mode) else 0
    return 0
