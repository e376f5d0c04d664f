"""Fit and pair for any two models by name: from this machine's files where they are here, else by asking the hub.

Imports no huggingface_hub and starts the hub's process only for what is not here.
"""

from __future__ import annotations

from typing import TypeVar

from localspec.core.errors import NotDownloaded, UsageError
from localspec.core.requests import WeightOptions
from localspec.hub.process import HubProcess
from localspec.hub.records import AnyAsk, AskFit, AskPair, FitFound, FitRequest, PairFound, PairRequest
from localspec.loading.fit import FitReport, fit_report, request_here, usable_gpu_bytes
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.runtime import pairs
from localspec.runtime.local_models import snapshots
from localspec.runtime.pairs import Candidate

Found = TypeVar("Found", FitFound, PairFound)


def fit(model: str, *, draft: str = "", quant: str = "auto", ctx: int | None = None) -> FitReport:
    """What a model, with a draft model if one is named, takes on this machine in each weight format. Reads headers
    only, also of what is not downloaded."""
    return fit_found(model, draft, WeightOptions(weight_format=quant, ctx=ctx)).report


def fit_found(model: str, draft: str, weights: WeightOptions) -> FitFound:
    """The same, with what was read from the hub for it."""
    catalog = Catalog.load()
    target, drafter = here(model, catalog), here(draft, catalog) if draft else None
    if target is not None and (drafter is not None or not draft):
        request = request_here(weights, drafter=drafter, gpu_bytes=usable_gpu_bytes())
        return FitFound(fit_report(target, request))
    repo, variant = on_hub(model, catalog)
    asked = FitRequest(repo, "", variant, ":".join(filter(None, on_hub(draft, catalog))) if draft else "", weights)
    return answer(AskFit(asked), FitFound)


def pair(target: str, draft: str = "", *, hub: bool = False) -> tuple[Candidate, ...]:
    """Whether a model can draft for another, as one candidate with its verdict; without `draft` the candidates on this
    machine, or with `hub` those of the hub, best first."""
    catalog = Catalog.load()
    first, second = here(target, catalog), here(draft, catalog) if draft else None
    if first is not None and second is not None:
        return (Candidate(draft, second.total_bytes, on_disk=True, verdict=pairs.pair(first, second)),)
    if first is not None and not draft and not hub:
        return tuple(pairs.candidates(first, snapshots(catalog)))
    repo, drafter = on_hub(target, catalog)[0], on_hub(draft, catalog)[0] if draft else ""
    return answer(AskPair(PairRequest(repo, drafter)), PairFound).candidates


def here(name: str, catalog: Catalog) -> Snapshot | None:
    """The model on this machine; None for a repository that is not here. NotDownloaded for what can be neither."""
    try:
        return open_snapshot(catalog.resolve(name).path, name)
    except NotDownloaded:
        if catalog.repository(name) or catalog.repository(name.partition(":")[0]):
            return None
        raise


def on_hub(name: str, catalog: Catalog) -> tuple[str, str]:
    """The repository of a name and the file of it that is meant; UsageError for a folder or a file."""
    if repo := catalog.repository(name):
        return repo, ""
    repo, _, variant = name.partition(":")
    if repo := catalog.repository(repo):
        return repo, variant
    hint = "Download the other first: localspec pull"
    raise UsageError(f"'{name[:200]}' is on this machine, and the other model is not.", hint=hint)


def answer(question: AnyAsk, kind: type[Found]) -> Found:
    with HubProcess() as hub:
        for found in hub.ask(question):
            if isinstance(found, kind):
                return found
    raise AssertionError("the hub's process ends with an answer, or with an error")
