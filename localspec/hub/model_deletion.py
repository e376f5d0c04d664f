"""Deletes GGUF models of repositories that keep others: their names in every version, the blobs that nothing else uses,
and the parts and notes of a download that is not complete.

The hub's library deletes the blobs, since it knows which store several repositories share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from huggingface_hub import scan_cache_dir

from localspec.hub import blobs, manifests, pulls
from localspec.hub.older import behind, commits_of, own_size, snapshot
from localspec.hub.one_of_several import links
from localspec.hub.records import ModelFiles
from localspec.models import hub_cache


def only_theirs(models: Sequence[ModelFiles]) -> set[Path]:
    """The files on the disk that no other name of their repositories leads to."""
    names = {link for one in models for link in links(one)}
    repos = {one.repo for one in models}
    others = (path for repo in repos for commit in commits_of(repo) for path in snapshot(repo, commit).rglob("*"))
    return set(map(behind, names)) - {behind(path) for path in others if path not in names}


def parts_of(models: Sequence[ModelFiles]) -> list[Path]:
    """What came of those that are not complete."""
    found = ((one.repo, file) for one in models for _, kept in notes_of(one) for file in kept.files)
    parts = dict.fromkeys(blobs.part(repo, file) for repo, file in found if blobs.known_hash(file))
    return [part for part in parts if part.exists()]


def notes_of(model: ModelFiles) -> Iterator[tuple[Path, pulls.PullState]]:
    for file, kept in pulls.notes():
        if kept.repo == model.repo and any(one.path in model.paths for one in kept.files):
            yield file, kept


def freed(file: Path) -> int:
    """The bytes that go with a file; of a store that several repositories share none, while another has it."""
    if not file.is_symlink():
        return own_size(file)
    same, linked = file.resolve(), hub_cache.folder().glob(f"{hub_cache.MODELS}*/blobs/*")
    is_shared = any(one != file and one.is_symlink() and one.resolve() == same for one in linked)
    return 0 if is_shared else blobs.size(file)


def delete_models(models: Sequence[ModelFiles]) -> None:
    files, parts = only_theirs(models), parts_of(models)
    for one in models:
        for link in links(one):
            link.unlink(missing_ok=True)
        for note, _ in notes_of(one):
            pulls.remove(note)
        manifests.remove(one.repo, one.paths)
    if files:
        nothing = scan_cache_dir(hub_cache.folder()).delete_revisions()
        replace(nothing, blobs=frozenset(file for file in files if file.is_symlink() or file.exists())).execute()
    for part in parts:
        part.unlink(missing_ok=True)
