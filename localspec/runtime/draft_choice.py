"""The choice of a drafter: what the user asked for, or what the catalogue says, as one decision with its reason.

Names a drafter and checks that it may draft; loads nothing. The drafters themselves are DRAFTERS' rows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.core.calibration import Calibration
from localspec.core.errors import REPEAT, CatalogError, CheckpointError, IncompatiblePair, NotDownloaded, UsageError
from localspec.core.events import DraftLength, Notice
from localspec.core.requests import AskedDraft, DraftRequest, LoadRequest, draft_length
from localspec.core.weight_formats import AUTO
from localspec.engine.arch import Arch
from localspec.engine.drafters import table
from localspec.engine.drafters.row import DraftTarget
from localspec.engine.drafters.table import DRAFTERS, EARLY_EXIT, LOOKUP
from localspec.engine.generic_arch import read_any
from localspec.loading.plan import drafter_hinders
from localspec.loading.plan_request import PlanRequest
from localspec.loading.plan_request import check as check_weights
from localspec.models.catalog import Catalog, DraftEntry, Entry
from localspec.models.catalog_file import EDIT
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.models.sandbox_jobs import TRANSLATE
from localspec.runtime.known_pairs import pulled_draft
from localspec.runtime.pairs import PairVerdict, pair

NOTHING_KNOWN = Calibration()
TURNED_OFF = "you turned it off"
THREADS_PER_PROCESSOR = 8
REFUSALS = {  # by a verdict's reason: the end of the sentence about a draft model, and its hint
    "recurrent": (
        "is a recurrent model: its state cannot be rolled back",
        "Use a draft of another kind, or --draft off.",
    ),
    "no-tokenizer": ("cannot be checked: a tokenizer.json is missing", "Use --draft off."),
}
UNLIKE = "cannot draft for '{target}': {detail}", "Use a smaller model of the same family, or --draft off."


@dataclass(frozen=True, slots=True)
class DrafterChoice:
    """The drafter to load: `kind` is its row in DRAFTERS, or "off", and `reason` why there is none. `exit_layer`: how
    many of the target's layers a draft runs through. `translates`: the draft model has another tokenizer. `k` is
    models.toml's; `notice` is for the user; `lookup`: a look-up in front of it drafts, too; `left_out`: the
    drafter of "auto" has no room beside the target."""

    kind: str
    name: str = ""
    exit_layer: int = 0
    snapshot: Snapshot | None = None
    translates: bool = False
    greedy: bool = False
    k: DraftLength = "auto"
    reason: str = ""
    notice: Notice | None = None
    argument: str = ""
    lookup: bool = False
    left_out: bool = False


LOOKED_UP = DrafterChoice(LOOKUP.name, LOOKUP.label(""))


def check(request: LoadRequest, catalog: Catalog) -> Entry:
    """Refuses what can be refused before any file of a model is read; the target's entry."""
    draft_length(request.k)
    check_weights(request.weights)
    check_threads(request.weights.threads)
    entry = catalog.resolve(request.model)
    check_entry(entry)
    draft = requested(request.draft)
    if table.has_model(draft.kind):
        find_draft(draft.argument, entry, catalog)
    return entry


def requested(asked: AskedDraft) -> DraftRequest:
    """Parses what the user asked for."""
    return table.parse(asked) if isinstance(asked, str) else asked.request


def check_entry(entry: Entry) -> None:
    """Refuses drafts in models.toml of a kind that there is not, or without what their kind needs."""
    named = dict(entry.drafts)
    for draft in (*named.values(), *filter(None, (entry.draft,))):
        if fault := fault_of(draft):
            raise CatalogError(f"models.toml: a draft of '{entry.key}' {fault}.", hint=EDIT)
    for name, draft in named.items():
        if not table.has_model(draft.kind):
            message = f"models.toml: '{entry.key}' has a named draft '{name}' whose kind is not \"{table.MODEL.name}\"."
            raise CatalogError(message, hint=EDIT)


def fault_of(draft: DraftEntry) -> str:
    """The fault of a draft in models.toml; "" for none."""
    kinds = [*DRAFTERS, "off"]
    if draft.kind not in kinds:
        return f"is of kind '{draft.kind}'; there are {', '.join(kinds)}"
    if table.has_model(draft.kind) != (draft.model is not None):
        return f'needs a model if, and only if, its kind is "{table.MODEL.name}"'
    setting = DRAFTERS[draft.kind].setting if draft.kind in DRAFTERS else ""
    if draft.exit_layer is not None and setting != "exit_layer":
        return f"has an exit_layer, and its kind is {draft.kind}"
    return ""


def check_threads(asked: int | None) -> None:
    """Refuses less than one thread, and far more than processors: they would wait for each other in every layer."""
    processors = os.cpu_count() or 1
    if asked is not None and asked < 1:
        raise UsageError(f"--threads {asked} is out of range.", hint="Use 1 or more, or leave it out.")
    if asked is not None and asked > THREADS_PER_PROCESSOR * processors:
        raise UsageError(
            f"--threads {asked} is too many for this computer's {processors} processors.",
            hint="Leave it out: the fastest count is measured.",
        )


def check_format(weight_format: str, choice: DrafterChoice) -> None:
    """Refuses --draft-quant for a drafter without weights of its own."""
    if weight_format != AUTO and choice.exit_layer:
        raise UsageError(
            "An early exit drafts with the target's own weights, so it has no --draft-quant of its own.",
            hint="Leave it out, or name a draft model: --draft ./FOLDER.",
        )


def choose(
    asked: AskedDraft,
    entry: Entry,
    target: Snapshot,
    catalog: Catalog,
    known: Calibration = NOTHING_KNOWN,
) -> DrafterChoice:
    """The user's own choice raises when it cannot draft; ours becomes plain decoding with a Notice, and so does any
    drafter of a target whose cache cannot be rolled back."""
    check_entry(entry)
    request = requested(asked)
    if request.kind == "off":
        return DrafterChoice("off", reason=TURNED_OFF)
    if request.kind == "auto":
        if not read_any(target.config).can_rewind:
            return no_rewind(target)
        usual = swept(known, entry, target) or by_catalogue(entry, target, catalog)
        return usual if usual.kind in ("off", LOOKUP.name) else replace(usual, lookup=True)
    choice = checked(request, entry, target)
    if not table.has_model(choice.kind):
        return choice
    named, argument = entry.named_draft(request.argument), request.argument
    found = find_draft(argument, entry, catalog)
    drafter = open_snapshot(found, argument if named else catalog.resolve(argument).name)
    choice = replace(choice, k=named.k) if named else choice
    return paired(replace(choice, name=argument), drafter, target)


def fitting(
    choice: DrafterChoice, asked: AskedDraft, target: Snapshot, plan: PlanRequest, *, held_bytes: int = 0
) -> DrafterChoice:
    """The choice; look-up alone, with a Notice, where "auto" chose it and the target would then be too large, or
    have layers offloaded, but not alone. `plan`: what it asks of a plan."""
    takes_memory = choice.snapshot is not None or choice.exit_layer
    if requested(asked).kind != "auto" or not takes_memory or not drafter_hinders(target, plan, held_bytes=held_bytes):
        return choice
    what = "the layers that it runs through" if choice.exit_layer else "both"
    message = f"{choice.name} could draft for {target.name}, but {what} do not fit in memory; look-up drafts alone."
    notice = Notice("info", "draft_memory", message, "Close other programs, or try a smaller --ctx, to use it.")
    return replace(LOOKED_UP, reason=message, notice=notice, left_out=True)


def checked(request: DraftRequest, entry: Entry, target: Snapshot) -> DrafterChoice:
    """The choice of this drafter, without its model if it has one; an error when the target does not allow it."""
    found = DRAFTERS[request.kind].check(request.argument, draft_target(entry, target))
    if not read_any(target.config).can_rewind:
        return no_rewind(target)
    return DrafterChoice(
        request.kind,
        found.name,
        found.exit_layer,
        greedy=request.greedy,
        notice=found.notice,
        argument=found.argument,
        lookup=request.lookup,
    )


def paired(choice: DrafterChoice, drafter: Snapshot, target: Snapshot) -> DrafterChoice:
    """The choice with the model that drafts; IncompatiblePair when it cannot."""
    if drafter.folder.resolve() == target.folder.resolve():
        message = f"{target.name} drafts for itself: a draft costs as much as the answer, so this is never faster."
        notice = Notice("warning", "own_draft", message, "Use a smaller model, or --draft off.")
        return replace(choice, snapshot=drafter, notice=notice)
    verdict = usable(pair(target, drafter), drafter, target)
    translates = verdict.reason == TRANSLATE
    return replace(choice, snapshot=drafter, translates=translates, notice=pairing_notice(verdict, drafter, target))


def swept(known: Calibration, entry: Entry, target: Snapshot) -> DrafterChoice | None:
    """The early exit that a sweep on this machine found fastest, unless models.toml wants another kind of drafter."""
    layer, layers = known.exit_layer, exit_layers(target)
    if layer is None or not 1 <= layer < layers or (entry.draft and entry.draft.kind != EARLY_EXIT.name):
        return None
    return replace(checked(DraftRequest(EARLY_EXIT.name, str(layer)), entry, target), k=known.k, notice=None)


def by_catalogue(entry: Entry, target: Snapshot, catalog: Catalog) -> DrafterChoice:
    """What models.toml or a pull says; a look-up where they say nothing, or what they name cannot draft."""
    draft = entry.draft or pulled_draft(entry, catalog)
    if draft is None:
        return LOOKED_UP
    if draft.kind == "off":
        return DrafterChoice("off", reason=TURNED_OFF)
    try:
        choice = replace(checked(draft.request, entry, target), k=draft.k)
        if not table.has_model(draft.kind):
            return choice
        name = str(draft.model)
        return paired(replace(choice, name=name), open_snapshot(entry_folder(draft, catalog), name), target)
    except (IncompatiblePair, NotDownloaded) as fault:
        notice = Notice("warning", fault.code, str(fault), "Continuing with look-up alone.")
        return replace(LOOKED_UP, reason=fault.message, notice=notice)


def draft_target(entry: Entry, target: Snapshot) -> DraftTarget:
    return DraftTarget(target.name, exit_layers(target), entry.name, entry.draft.exit_layer if entry.draft else None)


def exit_layers(target: Snapshot) -> int:
    """How many layers there are to exit among; 0 for what transformers runs."""
    arch = read_any(target.config)
    return arch.num_layers if isinstance(arch, Arch) else 0


def no_rewind(target: Snapshot) -> DrafterChoice:
    reason = f"{target.name} is a recurrent model: its state cannot be rolled back"
    notice = Notice("info", "no_rewind", f"Speculation is off: {reason}.", "It runs at normal speed.")
    return DrafterChoice("off", reason=reason, notice=notice)


def usable(verdict: PairVerdict, drafter: Snapshot, target: Snapshot) -> PairVerdict:
    """The verdict of a pair that can draft; IncompatiblePair of another."""
    if verdict.reason == "broken-tokenizer":
        raise CheckpointError(f"{verdict.detail}.", hint=REPEAT)
    if not verdict.ok:
        words, hint = REFUSALS.get(verdict.reason, UNLIKE)
        raise IncompatiblePair(
            f"'{short(drafter)}' {words.format(target=short(target), detail=verdict.detail)}.", hint=hint
        )
    return verdict


def pairing_notice(verdict: PairVerdict, drafter: Snapshot, target: Snapshot) -> Notice | None:
    """What the user should know about a pair that can draft, if anything."""
    if verdict.reason == TRANSLATE:
        message = f"'{short(drafter)}' has a different tokenizer from '{short(target)}', so its text is translated."
        return Notice("info", "translated", message, "The text stays the same; a draft with the same tokens is faster.")
    if verdict.reason != "controls-differ":
        return None
    message = f"'{short(drafter)}' and '{short(target)}' have the {verdict.detail}."
    return Notice("info", "controls", message, "The text stays correct, but few draft tokens are accepted.")


def short(model: Snapshot) -> str:
    """The model's name; of a path its end."""
    return os.path.basename(os.path.normpath(model.name)) if os.path.isabs(model.name) else model.name


def find_draft(name: str, entry: Entry, catalog: Catalog) -> Path:
    """The folder of a draft that models.toml names for this target, else of any model by key, repository or folder."""
    named = entry.named_draft(name)
    name = name if named else catalog.plain_name(name)
    try:
        return entry_folder(named, catalog) if named else catalog.resolve(name).path
    except NotDownloaded as fault:
        if catalog.repository(name):
            raise
        known = ", ".join(["auto", "off", *table.spellings(), *dict(entry.drafts)])
        hint = f"Use --draft {known}, or the folder or GGUF file of a small model."
        raise NotDownloaded(fault.message, hint=hint) from fault


def entry_folder(draft: DraftEntry, catalog: Catalog) -> Path:
    return draft.folder or catalog.resolve(str(draft.model)).path
