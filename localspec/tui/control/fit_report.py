"""What a model needs in memory, format by format, and whether it is there. Reads headers; loads nothing."""

from __future__ import annotations

from dataclasses import replace

from localspec.core.errors import DoesNotFit, UsageError
from localspec.core.main_memory import available_bytes
from localspec.core.requests import LoadRequest
from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.engine.generic_arch import read_any
from localspec.history.text.columns import columns
from localspec.loading.footprint import in_16_bits
from localspec.loading.plan import Plan, Wish, choices, choose_context, make_plan, needed
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.runtime.draft_choice import Choice, check_memory, choose

MARGIN = 0.05  # of what is free: less left over is a squeeze
GUESS = "Of the computer's memory, from the files' headers; a GPU's shows itself at loading."
OF_GPU = "Of all the GPU's memory, from the files' headers; what others have of it shows itself at loading."


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
    tokens = choose_context(snapshot.name, longest, context or load.ctx)
    wish = wish_of(load, drafter, tokens, gpu_bytes)
    free = available_bytes() + held_bytes if gpu_bytes is None else gpu_bytes
    formats = dict.fromkeys([*choices(snapshot, replace(wish, quant="auto")), *choices(snapshot, wish)])
    rows = [row(snapshot, wish, quant, free) for quant in formats]
    where = "free" if gpu_bytes is None else "on the GPU"
    head = f"{one_line(entry.name)}{drafted_by(drafter)} at {tokens:,} tokens, {free / 1e9:.1f} GB {where}"
    guess = GUESS if gpu_bytes is None else OF_GPU
    return "\n".join([head, columns(rows, right={1}), verdict(snapshot, wish, held_bytes), guess])


def wish_of(load: LoadRequest, drafter: Choice, tokens: int, gpu_bytes: int | None) -> Wish:
    device = "cpu" if load.device == "offload" else load.device.partition(":")[0]
    device = device if gpu_bytes is None else "cuda"
    limit, least = check_memory(load.max_memory), max(drafter.exit_layer, 1)
    wish = Wish.of(load, device, limit=limit, least=least, drafter=drafter.snapshot)
    return replace(wish, context=tokens, gpu_bytes=gpu_bytes)


def row(snapshot: Snapshot, wish: Wish, quant: str, free: int) -> tuple[str, str, str]:
    """A format, what it takes, whether that is there."""
    takes = needed(snapshot, wish, quant).whole
    left = free - takes
    word = "NO" if left < 0 else "MARGINAL" if left < MARGIN * free else "GOOD"
    short = f"{-left / 1e9:.1f} GB too little" if left < 0 else f"{left / 1e9:.1f} GB left"
    return quant, f"{takes / 1e9:.1f} GB", f"{word}, {short}"


def drafted_by(drafter: Choice) -> str:
    return f" with {one_line(drafter.name)}" if drafter.snapshot is not None else ""


def verdict(snapshot: Snapshot, wish: Wish, held_bytes: int) -> str:
    """How it would be loaded, and what stays in 16 bits; what to try, where it would not be loaded."""
    try:
        plan = make_plan(snapshot, wish, held_bytes=held_bytes)
    except DoesNotFit as fault:
        return str(fault)
    return f"It would be loaded in {plan}.{stays(snapshot, plan)}"


def stays(snapshot: Snapshot, plan: Plan) -> str:
    """The tables that the plan's format does not reach."""
    kept = in_16_bits(snapshot, plan.quant, keep_head=plan.keep_head, device=plan.device)
    names = " and ".join(f"the {name} ({size_words(size)})" for name, size in kept.items())
    return f" In {plan.quant} {names} {'stay' if len(kept) > 1 else 'stays'} in 16 bits." if kept else ""
