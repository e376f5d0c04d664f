"""One GGUF model of a repository that has others, here or unfinished: its name and files, so that it can be deleted
alone.

Knows no network and not the hub's library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from localspec.core.errors import NotDownloaded
from localspec.hub import pulls
from localspec.hub.older import commits_of, snapshot
from localspec.hub.records import ModelFiles
from localspec.models import hub_cache
from localspec.models.catalog import Catalog
from localspec.models.gguf import stores
from localspec.models.gguf.quants import ENDING, whole


def named_model(name: str, catalog: Catalog) -> ModelFiles | None:
    """The GGUF model that a name means; None for a whole repository, and for what is no GGUF file of one."""
    if name == (repo := catalog.repository(name)):
        return None
    key = catalog.key_of(name)
    try:
        path = catalog.resolve(name).path
    except NotDownloaded:
        file = catalog.models[key].file if key else None
        return model_at(repo, file) if file else begun_model(name)
    repo, _ = hub_cache.fetched_from(path)
    return model_at(repo, hub_cache.path_inside(path)) if repo and path.is_file() else None


def model_at(repo: str, file: str) -> ModelFiles:
    """The model that has this file."""
    paths = {file, *(path for path in weights_in(repo) if whole(path) == whole(file))}
    names = (one.name for one in stores.in_repository(repo) if hub_cache.path_inside(one.file) in paths)
    return ModelFiles(repo, next(names, f"{repo}:{whole(file)}"), tuple(sorted(paths)))


def begun_model(name: str) -> ModelFiles | None:
    """The model of an unfinished download."""
    for _, kept in pulls.notes():
        files = tuple(file.path for file in kept.files if file.path.lower().endswith(ENDING))
        if files and kept.request.name == name and kept.repo == kept.request.repo:
            return ModelFiles(kept.repo, name, files)
    return None


def apart(named: Sequence[str | ModelFiles]) -> tuple[tuple[str, ...], tuple[ModelFiles, ...]]:
    """The repositories that are deleted whole, and the models of others. Who names all models of a repository means
    all of it, the papers too."""
    models = {one.paths: one for one in named if isinstance(one, ModelFiles)}.values()
    paths = {(one.repo, path) for one in models for path in one.paths}
    ended = [one.repo for one in models if all((one.repo, path) in paths for path in weights_in(one.repo))]
    repos = tuple(dict.fromkeys([*(one for one in named if isinstance(one, str)), *ended]))
    return repos, tuple(one for one in models if one.repo not in repos)


def weights_in(repo: str) -> Iterator[str]:
    """The files with weights that are here, of any version, or of which a download is not complete."""
    kept = (file.path for _, kept in pulls.notes() if kept.repo == repo for file in kept.files)
    here = (hub_cache.path_inside(path) for commit in commits_of(repo) for path in snapshot(repo, commit).rglob("*"))
    for path in map(Path, (*here, *kept)):
        if path.suffix.lower() in hub_cache.WEIGHTS and stores.PROJECTOR not in path.name.lower():
            yield path.as_posix()


def links(model: ModelFiles) -> list[Path]:
    """The names of its files in every version."""
    found = (snapshot(model.repo, commit) / path for commit in commits_of(model.repo) for path in model.paths)
    return [path for path in found if path.is_symlink() or path.exists()]
