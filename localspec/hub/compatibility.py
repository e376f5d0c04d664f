"""Fit and pair for any two models by name: from this machine's files where they are here, else by asking the hub.

Imports no huggingface_hub and starts the hub's process only for what is not here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

from localspec.core.arguments import checked
from localspec.core.errors import NotDownloaded
from localspec.core.requests import WeightOptions
from localspec.hub.absent import asking_about
from localspec.hub.process import HubProcess
from localspec.hub.records import AnyAsk, AskFit, AskPair, FitFound, FitRequest, PairFound, PairRequest
from localspec.hub.request import asked_repository
from localspec.loading.fit import FitReport, fit_report, request_here, usable_gpu_bytes
from localspec.loading.plan_request import check
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.runtime import pairs
from localspec.runtime.local_models import own_drafts, snapshots
from localspec.runtime.pairs import DrafterCandidate

Found = TypeVar("Found", FitFound, PairFound)


@checked
def fit(model: str, *, draft: str = "", quant: str = "auto", ctx: int | None = None) -> FitReport:
    """What a model, with a draft model if one is named, takes on this machine in each weight format. Reads headers
    only, also of what is not downloaded."""
    return fit_found(model, draft, WeightOptions(weight_format=quant, ctx=ctx)).report


def fit_found(model: str, draft: str, weights: WeightOptions) -> FitFound:
    """The same, with what was read from the hub for it."""
    check(weights)
    catalog = Catalog.load()
    model, draft = catalog.plain_name(model), catalog.plain_name(draft)
    target = here(model, catalog)
    drafter = here(draft, catalog, target=model) if draft else None
    if target is not None and (drafter is not None or not draft):
        request = request_here(weights, drafter=drafter, gpu_bytes=usable_gpu_bytes())
        return FitFound(fit_report(target, request))
    repo, revision, variant = asked_repository(model) if target is None else (model, "", "")
    with asking_about(model, draft):
        return answer(AskFit(FitRequest(repo, revision, variant, draft, weights)), FitFound)


@checked
def pair(target: str, draft: str = "", *, hub: bool = False) -> tuple[DrafterCandidate, ...]:
    """Whether a model can draft for another, as one candidate with its verdict; without `draft` the candidates on this
    machine, or with `hub` those of the hub, best first."""
    catalog = Catalog.load()
    target, draft = catalog.plain_name(target), catalog.plain_name(draft)
    first = here(target, catalog)
    second = here(draft, catalog, target=target) if draft else None
    if first is not None and second is not None:
        return (DrafterCandidate(draft, second.total_bytes, on_disk=True, verdict=pairs.pair(first, second)),)
    if first is not None and not draft and not hub:
        return tuple(pairs.candidates(first, (*own_drafts(catalog.resolve(target)), *snapshots(catalog))))
    with asking_about(target, draft):
        return answer(AskPair(PairRequest(target, draft, hub)), PairFound).candidates


def here(name: str, catalog: Catalog, *, target: str = "") -> Snapshot | None:
    """The model on this machine, which may be a draft model that comes with `target`; None for a repository that is not
    here. NotDownloaded for what can be neither."""
    with suppress(NotDownloaded):
        own = {one.name: one for one in own_drafts(catalog.resolve(target))} if target else {}
        if name in own:
            return own[name]
    try:
        return open_snapshot(catalog.resolve(name).path, name)
    except NotDownloaded:
        asked_repository(name)
        return None


def answer(question: AnyAsk, kind: type[Found]) -> Found:
    with HubProcess() as hub:
        for found in hub.ask(question):
            if isinstance(found, kind):
                return found
    raise AssertionError("the hub's process ends with an answer, or with an error")
