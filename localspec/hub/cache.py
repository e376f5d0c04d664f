"""The last step of a download: the model can be loaded, and its branch or tag names the commit.

Knows no network.
"""

from __future__ import annotations

import os
from pathlib import Path

from localspec.hub import blobs
from localspec.hub.records import Repository
from localspec.models import hub_cache
from localspec.models.checkpoint import open_snapshot
from localspec.models.gguf.quants import ENDING


def model_path(repository: Repository) -> Path:
    """What loads it: the commit's snapshot, or the GGUF file in it."""
    folder = blobs.snapshot_dir(repository.repo, repository.commit)
    gguf = sorted(file.path for file in repository.files if file.path.endswith(ENDING))
    return folder / gguf[0] if gguf else folder


def check_loadable(repository: Repository) -> None:
    """CheckpointError for files that localspec would not load."""
    open_snapshot(model_path(repository), repository.repo)


def name_commit(repository: Repository) -> None:
    """Makes the revision that was asked for name this commit; a commit names itself. Atomic: an older version is there
    until the newer one is."""
    revision = repository.revision or "main"
    if hub_cache.COMMIT.fullmatch(revision):
        return
    reference = blobs.reference(repository.repo, revision)
    new = blobs.repo_dir(repository.repo) / f"{os.getpid()}.localspec"
    reference.parent.mkdir(parents=True, exist_ok=True)
    with new.open("w", encoding="ascii") as file:  # beside refs/: the hub's programs take every file in it for one
        file.write(repository.commit)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, reference)
