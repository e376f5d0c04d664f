"""Everything a person wants to know before a download: what it is, who may read it, if it fits, and what drafts for it.

Reads headers and small files only. Decides nothing about the download itself.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import msgspec

from localspec.core.disk import SPARE_BYTES, free_bytes
from localspec.core.requests import WeightOptions
from localspec.hub.alternatives import meanwhile
from localspec.hub.client import Client
from localspec.hub.drafter import AUTO, OfferedDrafter, drafter_for
from localspec.hub.records import DraftOffer, Progress, PullPlan, PullRequest
from localspec.hub.repository import Inspected, Seen, files_of, inspect, record, see
from localspec.hub.selection import variants
from localspec.loading.fit import FitReport, fit_report, request_here, usable_gpu_bytes
from localspec.loading.plan import drafter_hinders
from localspec.loading.plan_request import PlanRequest
from localspec.models import hub_cache
from localspec.models.catalog import Catalog
from localspec.models.named_templates import COMPLETION, OWN

Report = Callable[[Progress], None]
MOST_TRIED = 4  # headers of a GGUF repository, each of a megabyte or more
UNKNOWN = FitReport(name="", device="cpu", context=0, free_bytes=0, formats=(), chosen="", word="")
ALONE = OfferedDrafter(DraftOffer("none"))
SPOILS = "{} could draft, but both do not fit"
SPOILS_LAYERS = "{} could draft, but they do not all fit in memory"


def prepare(client: Client, request: PullRequest, scratch: Path, *, report: Report = lambda _: None) -> PullPlan:
    """The plan of a pull. `scratch`: the folder that keeps headers; `report` hears how far it is. Raises what forbids
    a download altogether."""
    repo = request.repo
    report(Progress(repo, "resolving", 0, 0))
    seen = see(client, repo, request.revision, scratch)
    target = inspect(
        seen, files_of(seen, request.variant), lambda done, total: report(Progress(repo, "headers", done, total))
    )
    if target.unloadable:
        return plan_of(target, OfferedDrafter(DraftOffer("none", detail="it cannot be loaded")))
    if seen.access.may_read and not target.files:
        plan = plan_of(target, OfferedDrafter(DraftOffer("none", detail="no file is chosen yet")))
        return msgspec.structs.replace(plan, variants=variant_fits(seen, request.weights))

    def checking() -> None:
        report(Progress(repo, "checking", 0, 0))

    checking()
    drafter = drafter_for(client, target, request.draft, scratch, heard=checking)
    if not seen.access.may_read:
        plan = plan_of(target, drafter)
        return msgspec.structs.replace(plan, meanwhile=meanwhile(client, repo, scratch, heard=checking))
    if request.draft == AUTO:
        drafter = that_fits_too(target, drafter, request.weights)
    return plan_of(target, drafter, fit_of(target, drafter, request.weights))


def that_fits_too(target: Inspected, drafter: OfferedDrafter, options: WeightOptions) -> OfferedDrafter:
    """The drafter that was found unasked; none, with the reason, where it takes the memory that the target needs to be
    loaded, or to be loaded whole."""
    if target.snapshot is None or not drafter_hinders(target.snapshot, asked_of_plan(drafter, options)):
        return drafter
    name, why = drafter.offer.name, SPOILS_LAYERS if drafter.offer.exit_layer else SPOILS
    return OfferedDrafter(DraftOffer("none", name=name, detail=why.format(name)))


def plan_of(target: Inspected, drafter: OfferedDrafter, fit: FitReport | None = None) -> PullPlan:
    chosen, model = record(target), record(drafter.model) if drafter.model else None
    left = chosen.bytes_left + (model.bytes_left if model else 0)
    return PullPlan(
        target=chosen,
        drafter=model,
        offer=drafter.offer,
        fit=fit,
        disk_free=free_bytes(hub_cache.folder()),
        disk_needed=left + SPARE_BYTES if left else 0,
        preset=template_for(chosen.repo, has_own=chosen.chat_template) if target.snapshot else "",
        unloadable=target.unloadable,
    )


def fit_of(target: Inspected, drafter: OfferedDrafter, options: WeightOptions) -> FitReport | None:
    """The fit of a target with its drafter; None where no header may be read."""
    if target.snapshot is None:
        return None
    return fit_report(target.snapshot, asked_of_plan(drafter, options))


def asked_of_plan(drafter: OfferedDrafter, options: WeightOptions) -> PlanRequest:
    """What loading a target with this drafter would ask of a plan."""
    exit_layer, gpu_bytes = drafter.offer.exit_layer, usable_gpu_bytes()
    return request_here(options, drafter=drafter.snapshot, min_resident=exit_layer, gpu_bytes=gpu_bytes)


def variant_fits(seen: Seen, options: WeightOptions) -> tuple[FitReport, ...]:
    """The fit of each model in a GGUF repository. They are of one architecture, and are converted to the same formats
    while they are loaded, so the header of the smallest that can be read is enough; its name and size are each one's
    own. Where none of the smallest can be, there are names and sizes alone."""
    known = variants(seen.all_files)
    tried = (fit_of(inspect(seen, one.parts), ALONE, options) for one in islice(known.values(), MOST_TRIED))
    fit = next(filter(None, tried), UNKNOWN)
    return tuple(msgspec.structs.replace(fit, name=label, num_bytes=one.num_bytes) for label, one in known.items())


def template_for(repo: str, *, has_own: bool) -> str:
    """The template that models.toml names and that is used: in place of the model's own, or for a model without one,
    which else completes text; "" for its own."""
    known = Catalog.load().of_repository(repo)
    named = known[1].template if known else None
    if named is None and known and not has_own:
        named = known[1].fallback_template
    return named if named not in (None, OWN) else "" if has_own else COMPLETION.name
