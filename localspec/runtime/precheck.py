"""Whether a model can be loaded as asked, before the one in memory is let go: files, format, memory and drafter.

Reads headers and compares tokenizers; reads no weights and imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.events import ModelCard
from localspec.core.main_memory import available_bytes
from localspec.core.requests import LoadRequest
from localspec.core.weight_formats import find_format
from localspec.loading.fit import request_here, usable_gpu_bytes
from localspec.loading.plan import Plan, bytes_free, drafter_footprint, make_plan
from localspec.loading.plan_request import PlanRequest
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.draft_choice import DrafterChoice, check, check_format, choose, fitting


@dataclass(frozen=True, slots=True)
class CheckedLoad:
    """A load that nothing known forbids. `name`: the model's, for the user; `draft`: what would draft."""

    name: str
    plan: Plan
    draft: DrafterChoice


def precheck(request: LoadRequest, *, held_bytes: int = 0, gpu_bytes: int | None = None) -> CheckedLoad:
    """How it would be loaded; LocalspecError, in one sentence, for what cannot be. `held_bytes` of main memory would be
    freed first; `gpu_bytes`: all memory of the GPU that the present model is on."""
    catalog = Catalog.load()
    entry = check(request, catalog)
    snapshot = open_snapshot(entry.path, entry.name)
    draft = choose(request.draft, entry, snapshot, catalog)
    check_format(request.weights.draft_format, draft)
    snapshot.read_tokenizer()
    draft = fitting(draft, request.draft, snapshot, asked_of_plan(request, draft, gpu_bytes), held_bytes=held_bytes)
    plan = make_plan(snapshot, asked_of_plan(request, draft, gpu_bytes), held_bytes=held_bytes)
    return CheckedLoad(entry.name, plan, draft)


def asked_of_plan(request: LoadRequest, draft: DrafterChoice, gpu_bytes: int | None) -> PlanRequest:
    gpu = usable_gpu_bytes() if gpu_bytes is None else gpu_bytes
    return request_here(request.weights, drafter=draft.snapshot, min_resident=draft.exit_layer, gpu_bytes=gpu)


def fits_beside(request: LoadRequest, draft: DrafterChoice, loaded: ModelCard, *, held_bytes: int = 0) -> bool:
    """Whether this drafter can be put beside the model as it is loaded: not for want of another, which is a
    plan's to decide. `held_bytes`: of the drafter before."""
    if loaded.is_offloaded or draft.left_out:
        return False
    if draft.snapshot is None:
        return True
    if request.weights.max_memory is not None:
        return False  # it was shared out when the model was planned
    asked = asked_of_plan(request, draft, None).asking(ctx=loaded.context_max)
    needs = drafter_footprint(asked, find_format(loaded.quant, asked.device))
    limit = bytes_free(asked, available_bytes() + held_bytes)
    return needs is None or limit is None or needs.whole <= limit
