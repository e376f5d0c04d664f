"""The chat's /fit: what `localspec fit` says of the model of the chat, what would be loaded, and what stays in 16
bits of it. Reads headers; loads nothing."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from localspec.core.errors import DoesNotFit, UsageError
from localspec.core.requests import LEAST_CONTEXT, LoadRequest, WeightOptions
from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.engine.generic_arch import read_any
from localspec.loading.fit import FitReport, fit_report, request_here
from localspec.loading.fit_text import sums_table
from localspec.loading.footprint import in_16_bits
from localspec.loading.plan import Plan, make_plan
from localspec.loading.plan_request import PlanRequest, choose_context
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.runtime.draft_choice import DrafterChoice, choose, fitting

GUESS = "Estimated from the files' headers, for main memory; a GPU's use is known only after loading."
OF_GPU = (
    "Estimated from the files' headers, for the whole GPU; memory that other programs use is known only at loading."
)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A model's headers, what a plan of it would be asked for, and what comes of that in each weight format."""

    snapshot: Snapshot
    request: PlanRequest
    report: FitReport
    title: str


def report_of(
    load: LoadRequest, context: int | None = None, *, held_bytes: int = 0, gpu_bytes: int | None = None
) -> Fitted:
    """`context` None: as the model is loaded. What is `held` would be given back first. `gpu_bytes`: all memory of the
    GPU that it is on. Waits for the disk."""
    catalog = Catalog.load()
    entry = catalog.resolve(load.model)
    snapshot = open_snapshot(entry.path, entry.name)
    drafter = choose(load.draft, entry, snapshot, catalog)
    longest = read_any(snapshot.config).max_context
    if context is not None and not LEAST_CONTEXT <= context <= longest:
        made_for = f"{one_line(entry.name)} was made for a context of {LEAST_CONTEXT} to {longest:,} tokens."
        raise UsageError(made_for, hint=f"Try: /fit {longest}")
    tokens = choose_context(snapshot.name, longest, context or load.weights.ctx)
    weights = msgspec.structs.replace(load.weights, ctx=tokens)
    asked = asked_of_plan(weights, drafter, gpu_bytes)
    drafter = fitting(drafter, load.draft, snapshot, asked, held_bytes=held_bytes)
    request = asked_of_plan(weights, drafter, gpu_bytes)
    report = fit_report(snapshot, request, held_bytes=held_bytes)
    return Fitted(snapshot, request, report, f"{one_line(entry.name)}{drafted_by(drafter)}")


def asked_of_plan(weights: WeightOptions, drafter: DrafterChoice, gpu_bytes: int | None) -> PlanRequest:
    """What loading with this drafter would ask of a plan."""
    return request_here(weights, drafter=drafter.snapshot, min_resident=drafter.exit_layer, gpu_bytes=gpu_bytes)


def what_fits(load: LoadRequest, context: int | None, *, held_bytes: int = 0, gpu_bytes: int | None = None) -> str:
    """The model's memory in each format, how it would be loaded, and how sure that is; as `report_of`."""
    found = report_of(load, context, held_bytes=held_bytes, gpu_bytes=gpu_bytes)
    report = found.report
    cache = f"{report.context:,} tokens, reserved at the start ({size_words(report.formats[0].kv_bytes)} of each sum)"
    head = f"{found.title} at {cache}: memory in each weight format"
    guess = OF_GPU if report.device == "cuda" else GUESS
    return "\n".join([head, sums_table(report), verdict(found.snapshot, found.request, held_bytes), guess])


def drafted_by(drafter: DrafterChoice) -> str:
    return f" with {one_line(drafter.name)}" if drafter.snapshot is not None else ""


def verdict(snapshot: Snapshot, request: PlanRequest, held_bytes: int) -> str:
    """How it would be loaded, and what stays in 16 bits; what to try, where it would not be loaded."""
    try:
        plan = make_plan(snapshot, request, held_bytes=held_bytes)
    except DoesNotFit as fault:
        return str(fault)
    return f"It would be loaded in {plan}.{stays(snapshot, plan)}"


def stays(snapshot: Snapshot, plan: Plan) -> str:
    """The tables that the plan's format does not reach."""
    kept = in_16_bits(snapshot, plan.weight_format, keep_head=plan.options.keep_head)
    names = " and ".join(f"the {name} ({size_words(size)})" for name, size in kept.items())
    return f" In {plan.weight_format} {names} {'stay' if len(kept) > 1 else 'stays'} in 16 bits." if kept else ""
