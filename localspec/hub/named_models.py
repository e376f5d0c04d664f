"""Any model by its name, from this machine where it is here, else from its headers on the hub.

Knows nothing about memory or pairs.
"""

from __future__ import annotations

from pathlib import Path

from localspec.core.errors import CHOOSE_ANOTHER, CheckpointError, NotDownloaded, UsageError
from localspec.core.sanitize import one_line
from localspec.hub.client import Client
from localspec.hub.repository import denied, files_of, inspect, see
from localspec.hub.request import asked_repository
from localspec.hub.selection import variants
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import Snapshot, open_snapshot

MOST_SHOWN = 6  # names in a message


def open_any(client: Client, name: str, scratch: Path) -> tuple[Snapshot, bool]:
    """A model by its key, folder, file or repository, perhaps with @REV and :VARIANT, and whether it is on this
    machine."""
    try:
        entry = Catalog.load().resolve(name)
    except NotDownloaded:
        repo, revision, variant = asked_repository(name)
        return open_repository(client, repo, scratch, revision=revision, variant=variant), False
    return open_snapshot(entry.path, entry.key), True


def open_repository(client: Client, repo: str, scratch: Path, *, revision: str = "", variant: str = "") -> Snapshot:
    """The model of a repository from headers; AccessDenied at a gate, an error with the reason where there is none."""
    seen = see(client, repo, revision, scratch)
    files = files_of(seen, variant)
    if not files:
        shown = ", ".join(one_line(label) for label in list(variants(seen.all_files))[:MOST_SHOWN])
        raise UsageError(f"{repo} has several models in GGUF.", hint=f"Use {repo}:NAME, e.g. {shown}.")
    found = inspect(seen, files)
    if not seen.access.may_read:
        raise denied(seen)
    if found.snapshot is None:
        raise CheckpointError(found.unloadable, hint=CHOOSE_ANOTHER)
    return found.snapshot
