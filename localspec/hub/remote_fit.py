"""The fit of a repository that is not downloaded, from its headers alone.

Knows no drafter but the one that is asked for.
"""

from __future__ import annotations

from pathlib import Path

from localspec.core.errors import CheckpointError, UsageError
from localspec.core.sanitize import one_line
from localspec.hub.client import Client
from localspec.hub.drafting import repository_of
from localspec.hub.records import FitFound, FitRequest
from localspec.hub.repository import denied, files_of, inspect, see
from localspec.hub.selection import variants
from localspec.loading.fit import fit_report, request_here, usable_gpu_bytes
from localspec.models.checkpoint import Snapshot

ANOTHER = "Choose another model."


def answer_fit(client: Client, request: FitRequest, scratch: Path) -> FitFound:
    """The fit of a target with its drafter; AccessDenied at a gate, CheckpointError for what could not be loaded."""
    before = client.bytes_read
    target = open_repository(client, request.repo, scratch, revision=request.revision, variant=request.variant)
    drafter = open_named(client, request.drafter, scratch) if request.drafter else None
    asked = request_here(request.weights, drafter=drafter, gpu_bytes=usable_gpu_bytes())
    return FitFound(fit_report(target, asked), client.bytes_read - before)


def open_named(client: Client, name: str, scratch: Path) -> Snapshot:
    """The model of a key or repository, perhaps with a variant after a colon."""
    repo, _, variant = repository_of(name).partition(":")
    return open_repository(client, repo, scratch, variant=variant)


def open_repository(client: Client, repo: str, scratch: Path, *, revision: str = "", variant: str = "") -> Snapshot:
    """The model of a repository from headers; an error with the reason where there is none."""
    seen = see(client, repo, revision, scratch)
    files = files_of(seen, variant)
    if not files:
        shown = ", ".join(one_line(label) for label in list(variants(seen.all_files))[:6])
        raise UsageError(f"{repo} has several models in GGUF.", hint=f"Use {repo}:NAME, e.g. {shown}.")
    found = inspect(seen, files)
    if not seen.access.may_read:
        raise denied(seen)
    if found.snapshot is None:
        raise CheckpointError(found.unloadable, hint=ANOTHER)
    return found.snapshot
