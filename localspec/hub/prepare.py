"""Everything a person wants to know before a download: what it is, whether it may be read, fits, and what drafts for it.

Reads headers and small files only. Decides nothing about the download itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from localspec.core.errors import CheckpointError
from localspec.core.requests import WeightOptions
from localspec.hub.client import Client
from localspec.hub.drafting import Drafter, drafter_for, preset_of
from localspec.hub.meanwhile import meanwhile
from localspec.hub.records import DraftOffer, Progress, PullPlan, PullRequest
from localspec.hub.repository import Inspected, Seen, files_of, inspect, record, see
from localspec.hub.selection import variants, weights_of
from localspec.loading.fit import FitReport, fit_report, request_here, usable_gpu_bytes
from localspec.models import hub_cache

SPARE_BYTES = 1 << 30  # that stay free on the disk
PLAIN = "plain"  # the preset of a model without a chat template, where the catalogue names none
Report = Callable[[Progress], None]


def prepare(client: Client, request: PullRequest, scratch: Path, *, report: Report = lambda _: None) -> PullPlan:
    """The plan of a pull. `scratch`: the folder that keeps headers; `report` hears how far it is. Raises what forbids
    a download altogether."""
    repo = request.repo
    report(Progress(repo, "resolving", 0, 0))
    seen = see(client, repo, request.revision, scratch)
    files = files_of(seen, request.variant)
    if not files:
        return with_variants(seen, request)
    target = inspect(seen, files, lambda done, total: report(Progress(repo, "headers", done, total)))
    if target.unloadable:
        return plan_of(target, Drafter(DraftOffer("none", detail="it cannot be loaded")), None)
    report(Progress(repo, "resolving", 0, 0))
    if not seen.access.may_read:
        offered = closed_offer(target, request)
        plan = plan_of(target, offered, None)
        return msgspec.structs.replace(plan, meanwhile=meanwhile(client, repo, scratch))
    drafter = drafter_for(client, target, request.draft, scratch)
    return plan_of(target, drafter, fit_of(target, drafter, request.weights))
