"""The order of a download: free disk, the target, its drafter; each is fetched, checked, linked and only then named.

Knows no plan's making and no pipe.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

from localspec.core.errors import AccessDenied, CheckpointError, DoesNotFit, LocalspecError, UsageError
from localspec.core.events import Notice
from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.hub import blobs, cache, pulled, pulls
from localspec.hub.faults import hub_faults
from localspec.hub.records import Fetched, Progress, Pulled, PullPlan, PullRequest, Repository, Retrying
from localspec.hub.transfer import Deadlines, Transfer
from localspec.models import hub_cache

Happening = Progress | Retrying | Notice | Fetched | Pulled
USUAL = Deadlines()


def fetch(plan: PullPlan, request: PullRequest, deadlines: Deadlines = USUAL) -> Iterator[Happening]:
    """Fetches what was planned, the target first: it is useful alone."""
    refuse_unready(plan)
    repositories = [plan.target, *([plan.drafter] if plan.drafter else [])]
    for repository in repositories:
        blobs.check_names(repository)
        refuse_gate(repository)
    refuse_full(plan)
    for repository in repositories:
        pulls.begin(repository, request)
    if request.xet:
        yield Notice("info", "xet", "The hub's library fetches the weights (--xet): a stopped download begins anew.")
    target = yield from fetch_one(plan.target, request, deadlines)
    drafter = (yield from fetch_one(plan.drafter, request, deadlines)) if plan.drafter else None
    path = cache.model_path(plan.target)
    yield Pulled(target, drafter, "" if path.is_dir() else str(path))


def fetch_one(
    repository: Repository, request: PullRequest, deadlines: Deadlines
) -> Generator[Happening, None, Fetched]:
    """One repository, until its revision names the commit; what it is stopped by is noted, and raised."""
    checked = 0
    if not blobs.is_complete(repository):
        transfer = Transfer(repository, xet=request.xet, deadlines=deadlines)
        try:
            with hub_faults(repository.repo):
                yield from transfer.events()
                cache.check_loadable(repository)
                cache.name_commit(repository)
        except LocalspecError as fault:
            pulls.stop(repository.repo, fault.message)
            raise
        checked = transfer.checked
    pulls.finish(repository.repo)
    pulled.remember(repository)
    folder = blobs.snapshot_dir(repository.repo, repository.commit)
    fetched = Fetched(repository.repo, repository.commit, str(folder), repository.num_bytes, checked)
    yield fetched
    return fetched


def refuse_unready(plan: PullPlan) -> None:
    """Raises where the plan is no plan yet: no file is chosen, or localspec could not load them."""
    repo = plan.target.repo
    if plan.unloadable:
        raise CheckpointError(plan.unloadable, hint="Choose another copy of the model.")
    if not plan.target.files:
        raise UsageError(f"{repo} has several models.", hint=f"Choose one: localspec pull {repo}:NAME")


def refuse_gate(repository: Repository) -> None:
    """AccessDenied where this account may not read the files."""
    if not repository.access.may_read:
        page = one_line(repository.access.page)
        raise AccessDenied(f"This account may not read {repository.repo} ({repository.access.gate}).", hint=page)


def refuse_full(plan: PullPlan) -> None:
    """DoesNotFit where the disk has less than the plan needs: before the first byte."""
    if plan.bytes_left and (free := free_bytes(hub_cache.folder())) < plan.disk_needed:
        raise DoesNotFit(
            f"The disk is too full: {size_words(free)} are free, the download needs {size_words(plan.disk_needed)}.",
            hint="Free some space, or move the cache with HF_HUB_CACHE.",
        )


def free_bytes(folder: Path) -> int:
    """Free bytes of the disk that a folder is on, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
