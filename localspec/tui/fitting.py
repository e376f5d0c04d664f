"""What a model needs in memory, format by format, and whether it is there. Reads headers; loads nothing."""

from __future__ import annotations

import psutil

from localspec.catalog import Catalog
from localspec.chatlog.columns import columns
from localspec.checkpoint import Snapshot, open_snapshot
from localspec.drafting import Choice, choose
from localspec.engine.arch import read_arch
from localspec.errors import DoesNotFit
from localspec.fit import choices, choose_context, make_plan, needed_bytes
from localspec.requests import LoadRequest
from localspec.sanitize import one_line

MARGIN = 0.05  # of what is free: less left over is a squeeze
GUESS = "Of the computer's memory, from the files' headers; a GPU's shows itself at loading."


def fit_report(load: LoadRequest, context: int | None, *, held_bytes: int = 0) -> str:
    """`context` None: as the model is loaded now. What is `held` would be given back first. Waits for the disk."""
    catalog = Catalog.load()
    entry = catalog.resolve(load.model)
    snapshot = open_snapshot(entry.path, entry.key)
    drafter = choose(load.draft, entry, snapshot, catalog)
    tokens = choose_context(snapshot.name, read_arch(snapshot.config).max_context, context or load.ctx)
    free = psutil.virtual_memory().available + held_bytes
    rows = [row(snapshot, drafter, quant, tokens, free) for quant in choices(snapshot, "auto", may_pack=True)]
    head = f"{one_line(entry.name)}{drafted_by(drafter)} at {tokens:,} tokens, {free / 1e9:.1f} GB free"
    return "\n".join([head, columns(rows, right={1}), verdict(snapshot, load, tokens), GUESS])


def row(snapshot: Snapshot, drafter: Choice, quant: str, tokens: int, free: int) -> tuple[str, str, str]:
    """A format, what it takes, whether that is there."""
    needed = needed_bytes(snapshot, read_arch(snapshot.config), quant, tokens)
    if drafter.snapshot is not None:
        arch = read_arch(drafter.snapshot.config)
        needed += needed_bytes(drafter.snapshot, arch, quant, min(tokens, arch.max_context))
    left = free - needed
    word = "NO" if left < 0 else "MARGINAL" if left < MARGIN * free else "GOOD"
    short = f"{-left / 1e9:.1f} GB too little" if left < 0 else f"{left / 1e9:.1f} GB left"
    return quant, f"{needed / 1e9:.1f} GB", f"{word}, {short}"


def drafted_by(drafter: Choice) -> str:
    return f" with {one_line(drafter.name)}" if drafter.snapshot is not None else ""


def verdict(snapshot: Snapshot, load: LoadRequest, tokens: int) -> str:
    """How it would be loaded; what to try, where it would not be."""
    try:
        plan = make_plan(snapshot, quant=load.quant, context=tokens, device=load.device)
    except DoesNotFit as fault:
        return str(fault)
    return f"It would be loaded in {plan.quant}."
