"""Reports a model's memory use, format by format, and whether it fits. Reads headers; loads nothing."""

from __future__ import annotations

from dataclasses import replace

from localspec.core.errors import DoesNotFit, UsageError
from localspec.core.main_memory import available_bytes
from localspec.core.requests import LoadRequest, WeightOptions
from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.core.weight_formats import AUTO, WeightFormat
from localspec.engine.generic_arch import read_any
from localspec.history.text.columns import columns
from localspec.loading.footprint import in_16_bits
from localspec.loading.plan import Plan, make_plan, needed
from localspec.loading.plan_request import PlanRequest, check_memory, choices, choose_context
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.runtime.draft_choice import Choice, choose

MARGIN = 0.05  # of what is free: less left over is a squeeze
GUESS = "Estimated from the files' headers, for main memory; a GPU's use is known only after loading."
OF_GPU = (
    "Estimated from the files' headers, for the whole GPU; memory that other programs use is known only at loading."
)


def fit_report(load: LoadRequest, context: int | None, *, held_bytes: int = 0, gpu_bytes: int | None = None) -> str:
    """`context` None: as the model is loaded now. What is `held` would be given back first. `gpu_bytes`: all memory of
    the GPU that it is on. Waits for the disk."""
    catalog = Catalog.load()
    entry = catalog.resolve(load.model)
    snapshot = open_snapshot(entry.path, entry.key)
    drafter = choose(load.draft, entry, snapshot, catalog)
    longest = read_any(snapshot.config).max_context
    if context is not None and not 1 < context <= longest:
        made_for = f"{one_line(entry.name)} was made for a context of 2 to {longest:,} tokens."
        raise UsageError(made_for, hint=f"Try: /fit {longest}")
    tokens = choose_context(snapshot.name, longest, context or load.weights.ctx)
    request = plan_request(load.weights, drafter, tokens, gpu_bytes)
    free = available_bytes() + held_bytes if gpu_bytes is None else gpu_bytes
    formats = dict.fromkeys([*choices(snapshot, request.asking(weight_format=AUTO)), *choices(snapshot, request)])
    rows = [row(snapshot, request, weight_format, free) for weight_format in formats]
    where = "free" if gpu_bytes is None else "on the GPU"
    head = f"{one_line(entry.name)}{drafted_by(drafter)} at {tokens:,} tokens, {free / 1e9:.1f} GB {where}"
    guess = GUESS if gpu_bytes is None else OF_GPU
    return "\n".join([head, columns(rows, right={1}), verdict(snapshot, request, held_bytes), guess])


def plan_request(options: WeightOptions, drafter: Choice, tokens: int, gpu_bytes: int | None) -> PlanRequest:
    on_gpu = gpu_bytes is not None or options.device.partition(":")[0] == "cuda"
    max_bytes, min_resident = check_memory(options.max_memory), max(drafter.exit_layer, 1)
    request = PlanRequest(options, "cuda" if on_gpu else "cpu", max_bytes, min_resident)
    return replace(request, drafter=drafter.snapshot, gpu_bytes=gpu_bytes).asking(ctx=tokens)


def row(snapshot: Snapshot, request: PlanRequest, weight_format: WeightFormat, free: int) -> tuple[str, str, str]:
    """A weight format, the memory it takes, and whether that is free."""
    takes = needed(snapshot, request, weight_format).whole
    left = free - takes
    word = "NO" if left < 0 else "MARGINAL" if left < MARGIN * free else "GOOD"
    short = f"{-left / 1e9:.1f} GB too little" if left < 0 else f"{left / 1e9:.1f} GB left"
    return weight_format.name, f"{takes / 1e9:.1f} GB", f"{word}, {short}"


def drafted_by(drafter: Choice) -> str:
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
