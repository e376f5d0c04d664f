"""What forbids a download before its first byte: a closed gate, an unusable plan, a full disk, a licence not accepted.

Reads a plan and the disk; knows no network and imports nothing of the hub's library.
"""

from __future__ import annotations

from collections.abc import Iterable

from localspec.core.disk import SPARE_BYTES
from localspec.core.errors import AccessDenied, CheckpointError, DoesNotFit, UsageError
from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.hub.licences import acknowledge, must_acknowledge
from localspec.hub.records import PullPlan, Repository


def refuse_unready(plan: PullPlan) -> None:
    """Raises where the plan is no plan yet: a gate is closed, localspec could not load the files, or none is chosen."""
    for one in plan.repositories:
        refuse_gate(one)
    repo = plan.target.repo
    if plan.unloadable:
        raise CheckpointError(plan.unloadable, hint="Nothing was downloaded. Choose another copy of the model.")
    if not plan.target.files:
        first = plan.variants[0].name if plan.variants else "NAME"
        raise UsageError(f"{repo} has several models.", hint=f"Choose one: localspec pull {repo}:{first}")


def refuse_gate(repository: Repository) -> None:
    """AccessDenied where this account may not read the files."""
    if not repository.access.may_read:
        page = one_line(repository.access.page)
        raise AccessDenied(f"This account may not read {repository.repo} ({repository.access.gate}).", hint=page)


def refuse_full(plan: PullPlan, free: int) -> None:
    """DoesNotFit where the disk has fewer free bytes than the plan needs."""
    if plan.bytes_left and free < plan.disk_needed:
        raise DoesNotFit(
            f"The disk is too full: {size_words(free)} are free; the download takes "
            f"{size_words(plan.bytes_left)}, and {size_words(SPARE_BYTES)} have to stay free.",
            hint=f"Free {size_words(plan.disk_needed - free)}, or move the cache with HF_HUB_CACHE.",
        )


def refuse_licences(repositories: Iterable[Repository], *, accepted: bool) -> None:
    """Remembers non-commercial licences that were accepted just now; AccessDenied for one that never was."""
    for one in repositories:
        if sentence := licence_sentence(one):
            if not accepted:
                raise AccessDenied(sentence, hint="To accept it, once: pass accept_licence=True")
            acknowledge(one.repo, one.licence)


def licence_sentence(one: Repository) -> str:
    """What a user has to accept before this repository is fetched; "" for nothing."""
    if not must_acknowledge(one.repo, one.licence):
        return ""
    return f"The licence of {one_line(one.repo)} ({one_line(one.licence.words)}) allows no commercial use."
