"""Who drafts: what the user asked for, or what the catalogue says, as one decision with its reason.

Names a drafter and checks that it may draft; loads nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from localspec.core.calibration import Calibration
from localspec.core.errors import IncompatiblePair, NotDownloaded, UsageError
from localspec.core.events import Notice
from localspec.core.requests import LONGEST_DRAFT, DraftModel, EarlyExit, LoadRequest, is_draft_length
from localspec.core.sizes import read_size
from localspec.core.weight_formats import AUTO
from localspec.engine.arch import Arch
from localspec.engine.generic_arch import read_any
from localspec.models.catalog import Catalog, DraftEntry, Entry
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.models.sandbox import compare_tokenizers

NOTHING_KNOWN = Calibration()
THREADS_PER_PROCESSOR = 8
HERE = "Use auto, off, early-exit:E, or the folder or GGUF file of a small model."


@dataclass(frozen=True, slots=True)
class Choice:
    """The drafter to load. `k` is what models.toml says of it; `reason` why there is none; `notice` is for the user."""

    kind: Literal["early-exit", "model", "off"]
    name: str = ""
    exit_layer: int = 0
    snapshot: Snapshot | None = None
    greedy: bool = False
    k: str = "auto"
    reason: str = ""
    notice: Notice | None = None


def check(request: LoadRequest) -> None:
    """What can be refused of a request before any file of a model is read."""
    check_k(request.k)
    check_memory(request.weights.max_memory)
    check_threads(request.weights.threads)
    catalog = Catalog.load()
    entry = catalog.resolve(request.model)
    draft = parse(request.draft) if isinstance(request.draft, str) else request.draft
    if isinstance(draft, DraftModel):
        find_draft(draft.model, entry, catalog)


def check_files(request: LoadRequest) -> None:
    """And what the headers of its files refuse: that this is no model, or has no such exit."""
    catalog = Catalog.load()
    entry = catalog.resolve(request.model)
    snapshot = open_snapshot(entry.path, entry.key)
    draft = parse(request.draft) if isinstance(request.draft, str) else request.draft
    if isinstance(draft, EarlyExit):
        early_exit(draft.layer, entry, snapshot, greedy=draft.greedy)


def check_k(k: str) -> None:
    if not is_draft_length(k):
        raise UsageError(f"'{k}' is not a draft length.", hint=f"Use --k auto, heuristic, or 0 to {LONGEST_DRAFT}.")


def check_memory(written: str | None) -> int | None:
    """--max-memory in bytes; None where nothing was said."""
    found = None if written is None else read_size(written)
    if written is not None and found is None:
        raise UsageError(f"'{written[:40]}' is not a size of memory.", hint="Write --max-memory 8GB, say.")
    return found


def check_threads(asked: int | None) -> None:
    """A few more than there are processors do no harm; many wait for each other in every layer."""
    processors = os.cpu_count() or 1
    if asked is not None and asked > THREADS_PER_PROCESSOR * processors:
        raise UsageError(
            f"--threads {asked} is too many for this computer's {processors} processors.",
            hint="Leave it out: the fastest count is measured.",
        )


def check_format(weight_format: str, choice: Choice) -> None:
    """UsageError for --draft-quant where no model drafts."""
    if weight_format != AUTO and choice.kind == "early-exit":
        raise UsageError(
            "An early exit drafts with the target's own weights, so it has no --draft-quant of its own.",
            hint="Leave it out, or name a draft model: --draft ./FOLDER.",
        )


def choose(
    asked: str | EarlyExit | DraftModel,
    entry: Entry,
    target: Snapshot,
    catalog: Catalog,
    known: Calibration = NOTHING_KNOWN,
) -> Choice:
    """The user's own choice raises when it cannot draft; ours becomes plain decoding with a Notice, and so does any
    draft model where the target cannot take a draft back."""
    match asked if not isinstance(asked, str) else parse(asked):
        case EarlyExit(layer=layer, greedy=greedy):
            return early_exit(layer, entry, target, greedy=greedy)
        case DraftModel() | "auto" if not read_any(target.config).can_rewind:
            return no_way_back(target)
        case DraftModel(model=name, greedy=greedy):
            named = entry.named_draft(name)
            choice = draft_model(open_snapshot(find_draft(name, entry, catalog), name), target, greedy=greedy)
            return replace(choice, k=named.k) if named else choice
        case "off":
            return Choice("off", reason="you turned it off")
    return swept(known, entry, target) or by_catalogue(entry, target, catalog)


def swept(known: Calibration, entry: Entry, target: Snapshot) -> Choice | None:
    """The early exit that a sweep on this machine found fastest, unless models.toml wants another kind of drafter."""
    layer, layers = known.exit_layer, exit_layers(target)
    if layer is None or not 1 <= layer < layers or (entry.draft and entry.draft.kind != "early-exit"):
        return None
    k = known.k if is_draft_length(known.k) else "auto"
    return replace(early_exit(layer, entry, target, greedy=False), k=k, notice=None)


def parse(text: str) -> str | EarlyExit | DraftModel:
    """ "auto", "off", "early-exit", "early-exit:E", or the name of a model."""
    if text in ("auto", "off"):
        return text
    if text == "lookup":
        raise UsageError("Drafting by look-up is not in this version.", hint=HERE)
    kind, colon, layer = text.partition(":")
    if kind != "early-exit":
        return DraftModel(text)
    if colon and not layer.isdecimal():
        fault = f"'{layer}' is not an exit layer." if layer else f"'{text}' names no layer."
        raise UsageError(fault, hint="Write --draft early-exit:3, say.")
    return EarlyExit(int(layer) if layer else None)


def by_catalogue(entry: Entry, target: Snapshot, catalog: Catalog) -> Choice:
    draft = entry.draft
    if draft is None or draft.kind == "off":
        reason = "no drafter is known for this model"
        small = "--draft ./FOLDER or ./FILE.gguf of a small model with the same tokenizer"
        hint = f"Name one: {'--draft early-exit:E for a LayerSkip model, or ' if exit_layers(target) else ''}{small}."
        return Choice("off", reason=reason, notice=Notice("info", "no_drafter", f"Speculation is off: {reason}.", hint))
    try:
        if draft.kind == "early-exit":
            return replace(early_exit(draft.exit_layer, entry, target, greedy=False), k=draft.k)
        drafter = open_snapshot(entry_folder(draft, catalog), str(draft.model))
        return replace(draft_model(drafter, target, greedy=False), k=draft.k)
    except (IncompatiblePair, NotDownloaded) as fault:
        return Choice("off", reason=fault.message, notice=Notice("warning", fault.code, str(fault), "Decoding plain."))


def early_exit(layer: int | None, entry: Entry, target: Snapshot, *, greedy: bool) -> Choice:
    layers = exit_layers(target)
    trained = entry.draft is not None and entry.draft.exit_layer is not None
    known = entry.draft.exit_layer if entry.draft else None
    exit_layer = layer if layer is not None else known or max(layers // 4, 1)
    check_exit(exit_layer, layers, target.name)
    message = (
        f"'{entry.name}' may not be trained for early exit; drafts from layer {exit_layer} may be accepted rarely."
    )
    notice = None if trained else Notice("warning", "untrained_exit", message, "Watch the acceptance, or --draft off.")
    return Choice("early-exit", f"layers 1–{exit_layer}", exit_layer, greedy=greedy, notice=notice)


def check_exit(layer: int, layers: int, name: str) -> None:
    """`layers` is 0 where the first ones cannot be run alone."""
    if not layers:
        raise UsageError(
            f"{name} cannot draft by early exit: transformers runs it, and not localspec's own decoder.",
            hint="Use --draft ./FOLDER or ./FILE.gguf of a small model with the same tokenizer, or --draft off.",
        )
    if not 1 <= layer < layers:
        raise UsageError(
            f"Exit layer {layer} is outside {name}, which has {layers} layers.",
            hint=f"Use early-exit:E with E from 1 to {layers - 1}.",
        )


def exit_layers(target: Snapshot) -> int:
    """How many layers there are to leave after; 0 for what transformers runs."""
    arch = read_any(target.config)
    return arch.num_layers if isinstance(arch, Arch) else 0


def no_way_back(target: Snapshot) -> Choice:
    reason = f"{target.name} folds all it has read into one state and cannot take a rejected draft back"
    notice = Notice("info", "no_rewind", f"Speculation is off: {reason}.", "It decodes plain.")
    return Choice("off", reason=reason, notice=notice)


def draft_model(drafter: Snapshot, target: Snapshot, *, greedy: bool) -> Choice:
    if not read_any(drafter.config).can_rewind:
        raise IncompatiblePair(
            f"Draft '{drafter.name}' folds all it has read into one state and cannot take a rejected draft back.",
            hint="Use a draft of another kind, or --draft off.",
        )
    if target.tokenizer_file is None or drafter.tokenizer_file is None:
        raise IncompatiblePair(
            f"Draft '{drafter.name}' cannot be checked: a tokenizer.json is missing.", hint="Use --draft off."
        )
    verdict = compare_tokenizers(target.read_tokenizer(), drafter.read_tokenizer())
    if not verdict.ok:
        raise IncompatiblePair(
            f"Draft '{drafter.name}' cannot draft for '{target.name}': {verdict.detail}.",
            hint="Use a draft with the same tokenizer, or --draft off.",
        )
    notice = None
    if verdict.reason == "controls-differ":
        message = f"Draft '{drafter.name}' and '{target.name}' have the {verdict.detail}."
        notice = Notice("info", "controls", message, "The text stays right; a draft of these is accepted rarely.")
    return Choice("model", drafter.name, snapshot=drafter, greedy=greedy, notice=notice)


def find_draft(name: str, entry: Entry, catalog: Catalog) -> Path:
    """The folder of a draft that models.toml names for this target, else of any model by key or folder."""
    named = entry.named_draft(name)
    try:
        return entry_folder(named, catalog) if named else catalog.resolve(name).path
    except NotDownloaded as fault:
        known = ", ".join(["auto", "off", "early-exit:E", *dict(entry.drafts)])
        hint = f"Use --draft {known}, or the folder or GGUF file of a small model."
        raise NotDownloaded(fault.message, hint=hint) from fault


def entry_folder(draft: DraftEntry, catalog: Catalog) -> Path:
    return draft.folder or catalog.resolve(str(draft.model)).path
