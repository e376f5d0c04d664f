"""Deletes cached repositories, only their older commits, or one of their models: what that frees is known before, and
measured after. Blobs that others share stay.

The hub's library knows what is shared; ours are the parts of unfinished downloads and what is known about them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from stat import S_ISREG

import msgspec
from huggingface_hub import HFCacheInfo, scan_cache_dir
from huggingface_hub.errors import CacheNotFound
from huggingface_hub.utils import DeleteCacheStrategy

from localspec.core.errors import NotDownloaded
from localspec.core.sanitize import one_line
from localspec.hub import blobs, licences, manifests, pulls
from localspec.hub.model_deletion import delete_models, freed, only_theirs, parts_of
from localspec.hub.older import commits_of, older_commits, older_of, only_used_by, own_size, snapshot, stored
from localspec.hub.records import Deleted, DeletePlan, ModelFiles
from localspec.hub.writers import refuse_written
from localspec.loading.packed_files import packed_files
from localspec.models import hub_cache
from localspec.runtime import known_pairs


def delete(
    repos: Sequence[str], older: Sequence[str] = (), models: Sequence[ModelFiles] = ()
) -> Iterator[DeletePlan | Deleted]:
    """The plan; iterated on, deletes and says what that freed. Of the repositories in `older` only older commits go, of
    those of `models` these models."""
    repos = tuple(dict.fromkeys(repos))
    older = tuple(repo for repo in dict.fromkeys(older) if repo not in repos)
    touched = dict.fromkeys([*repos, *older, *(one.repo for one in models)])
    for repo in (*repos, *older):
        refuse_absent(repo)
    for repo in touched:
        refuse_written(repo)
    folders = [blobs.repo_dir(repo) for repo in touched]
    found = [one for repo in repos for one in cached(repo)]
    prepared = [file for repo in repos for file in prepared_from(repo)]
    prepared += [file for repo in older for file in prepared_from_older(repo)]
    prepared += packed_files(only_theirs(models))
    yield with_models(planned(repos, older, found, prepared), models)
    for repo in touched:  # since then one may have been begun
        refuse_written(repo)
    before = sum(map(own_bytes, measured(folders))) + sum(map(own_size, prepared))
    for file in prepared:
        with suppress(OSError):
            file.unlink()
    for repo in older:
        delete_older(repo)
    delete_models(models)
    for cache in found:
        whole(cache).execute()
    for repo in repos:
        shutil.rmtree(blobs.repo_dir(repo), ignore_errors=True)  # the library calls an unfinished download damaged
        pulls.forget(repo)
        licences.forget(repo)
        known_pairs.PULLED.remove(repo)
        manifests.forget(repo)
    after = sum(map(own_bytes, measured(folders))) + sum(map(own_size, prepared))
    yield Deleted(repos, before - after, older, tuple(one.name for one in models))


def planned(
    repos: tuple[str, ...], older: tuple[str, ...], found: Sequence[HFCacheInfo], prepared: Sequence[Path]
) -> DeletePlan:
    """What the deletion frees. `found`: what the library knows of `repos`; `prepared`: copies in the weight cache."""
    linked = {file.blob_path for cache in found for one in cache.repos for at in one.revisions for file in at.files}
    elsewhere = sum(blobs.size(path) for path in linked if path.is_symlink())
    swept = sum(map(expected, found)) - sum(blobs.size(path) for path in linked if not path.is_symlink())
    whole_bytes = sum(own_bytes(blobs.repo_dir(repo)) for repo in repos) + swept
    old_bytes = sum(strategy.expected_freed_size for repo in older for strategy in of_older(repo))
    prepared_bytes = sum(map(own_size, prepared))
    return DeletePlan(
        repos,
        whole_bytes + old_bytes + prepared_bytes,
        unfinished_bytes=sum(blobs.size(part) for repo in repos for part in blobs.parts(repo)),
        shared_bytes=elsewhere - swept,
        older=older,
        older_bytes=old_bytes + sum(older_of(repo).num_bytes for repo in repos),
        prepared_bytes=prepared_bytes,
    )


def with_models(plan: DeletePlan, models: Sequence[ModelFiles]) -> DeletePlan:
    """The plan with what these free, too."""
    files, begun = only_theirs(models), sum(map(blobs.size, parts_of(models)))
    own = sum(map(freed, files))
    return msgspec.structs.replace(
        plan,
        freed_bytes=plan.freed_bytes + own + begun,
        unfinished_bytes=plan.unfinished_bytes + begun,
        shared_bytes=plan.shared_bytes + sum(map(blobs.size, files)) - own,
        models=tuple(one.name for one in models),
    )


def prepared_from(repo: str) -> list[Path]:
    """The copies in the weight cache of every version of a repository, and of its GGUF files."""
    folders = [snapshot(repo, commit) for commit in commits_of(repo)]
    return packed_files([*folders, *(file for folder in folders for file in stored(folder))])


def prepared_from_older(repo: str) -> list[Path]:
    """The prepared weights of its older commits alone."""
    commits = older_commits(repo)
    return packed_files([*(snapshot(repo, commit) for commit in commits), *only_used_by(repo, commits)])


def delete_older(repo: str) -> None:
    """Deletes the commits that are older now: meanwhile one may have been loaded, or named again."""
    commits = older_commits(repo)
    for strategy in of_older(repo):
        strategy.execute()
    for commit in commits:
        manifests.forget(repo, commit)


def of_older(repo: str) -> list[DeleteCacheStrategy]:
    """The library's plan to delete the older commits of a repository, if it has any."""
    commits = older_commits(repo)
    return [cache.delete_revisions(*commits) for cache in cached(repo)] if commits else []


def refuse_absent(repo: str) -> None:
    if not blobs.repo_dir(repo).is_dir():
        hint = "See what is: localspec ls"
        raise NotDownloaded(f"{one_line(repo)} is not in the Hugging Face cache.", hint=hint)


def cached(repo: str) -> list[HFCacheInfo]:
    """The cache as if it held this repository alone: the library finds commits by their hash, and two repositories may
    have the same. Empty where it has none that is whole."""
    try:
        cache = scan_cache_dir(hub_cache.folder())
    except CacheNotFound:
        return []
    found = [one for one in cache.repos if one.repo_type == "model" and one.repo_id == repo and one.revisions]
    return [replace(cache, repos=frozenset([one])) for one in found]


def whole(cache: HFCacheInfo) -> DeleteCacheStrategy:
    """The library's plan to delete every commit of the one repository."""
    return cache.delete_revisions(*(at.commit_hash for one in cache.repos for at in one.revisions))


def expected(cache: HFCacheInfo) -> int:
    return whole(cache).expected_freed_size


def measured(folders: Sequence[Path]) -> list[Path]:
    """The folders that a deletion may change: the repositories', and that of blobs which several share."""
    return [*folders, hub_cache.folder() / "blobs"]


def own_bytes(folder: Path) -> int:
    """Bytes of the files below a folder, each once, without what links lead to."""
    stats = {}
    for at, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                stat = os.lstat(os.path.join(at, name))
                stats[stat.st_dev, stat.st_ino] = stat.st_size if S_ISREG(stat.st_mode) else 0
    return sum(stats.values())
