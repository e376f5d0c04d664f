"""From a request to a running model: catalogue, snapshot, plan, self-check, weights, drafter, session, threads.

Yields progress and returns the Model. Decides by asking the rooms below; computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from localspec.core import calibration
from localspec.core.drain import relay
from localspec.core.errors import DoesNotFit, EngineError, LocalspecError
from localspec.core.events import Loading, ModelCard, Notice, Ready, SpecCard
from localspec.core.requests import DraftModel as DraftModelDraft
from localspec.core.requests import EarlyExit as EarlyExitDraft
from localspec.core.requests import LoadRequest, SpecWish, WeightOptions
from localspec.core.sizes import size_words
from localspec.core.weight_formats import AUTO, FLOATS
from localspec.engine.drafters.early_exit import EarlyExit
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.model import DraftModel
from localspec.engine.drafters.none import NoDrafter
from localspec.engine.foreign import keep_offline
from localspec.engine.generic_arch import is_generic
from localspec.engine.memory import give_back
from localspec.engine.policy import Steered
from localspec.engine.protocols import Drafter, Resident, is_layered
from localspec.engine.session import Session
from localspec.loading.devices import gpu_bytes, gpu_faults, pick_device, spare_gpu_bytes, unused
from localspec.loading.footprint import footprint
from localspec.loading.kernels import load_decoder, verify
from localspec.loading.plan import Plan, draft_plan, ladder
from localspec.loading.plan_request import PlanRequest, choices
from localspec.loading.resident import choose_threads, measure_memory, possible
from localspec.loading.threads import Threads
from localspec.models.catalog import Catalog, Entry
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.models.folding import Folding
from localspec.models.prequantised.stored import stored_format
from localspec.models.prompt_sandbox import SandboxedPrompter
from localspec.runtime import draft_choice
from localspec.runtime.model import Model, Parts, told_eager
from localspec.runtime.sampling_defaults import defaults

if TYPE_CHECKING:
    pass

Told = Loading | Notice | Ready


@dataclass(frozen=True, slots=True)
class Opened:
    """A target in memory, and what it takes to put a drafter beside it. `choice`: the drafter it was planned with."""

    request: LoadRequest
    catalog: Catalog
    entry: Entry
    snapshot: Snapshot
    plan: Plan
    prompter: SandboxedPrompter
    target: Resident
    threads: int
    choice: draft_choice.Choice
    folding: Folding | None = None


def open_model(request: LoadRequest) -> Generator[Told, None, Model]:
    """Loading and Notices, then Ready; returns the Model, to which all of it belongs."""
    with gpu_faults():
        return (yield from told_once(open_whole(request)))


def open_whole(request: LoadRequest) -> Generator[Told, None, Model]:
    opened = yield from open_target(request)
    return (yield from attach(opened, request.draft, request.k, owns_target=True))


def told_once(steps: Generator[Told, None, Model]) -> Generator[Told, None, Model]:
    """Without the Notices that the draft repeats after the target."""
    told: set[tuple[str, str]] = set()

    def news(event: Told) -> Told | None:
        if not isinstance(event, Notice):
            return event
        said = (event.code, event.message)
        if said in told:
            return None
        told.add(said)
        return event

    return relay(steps, news)


def open_target(request: LoadRequest) -> Generator[Loading | Notice, None, Opened]:
    """The target alone. What can be refused cheaply is refused before any weight is read."""
    keep_offline()
    draft_choice.check_k(request.k)
    draft_choice.check_threads(request.weights.threads)
    catalog = Catalog.load()
    entry = catalog.resolve(request.model)
    snapshot = open_snapshot(entry.path, entry.key)
    choice = draft_choice.choose(request.draft, entry, snapshot, catalog)
    draft_choice.check_format(request.weights.draft_format, choice)
    table = entry.folding if request.folding else None
    folding = Folding.open(entry.path / table.words, table.sums) if table else None
    prompter = SandboxedPrompter.open(snapshot)
    if request.weights.device == "auto" and (reason := unused()):
        yield Notice("warning", "device", f"{reason.message} The CPU computes.", reason.hint)
    plan, target = yield from loaded(snapshot, plan_request(request.weights, choice))
    yield from converted(snapshot, plan)
    if request.weights.save_quantized and (why := unsaved(snapshot, plan)):
        message = f"--save-quantized changes nothing for {snapshot.name} in {plan.weight_format}: {why}."
        yield Notice("info", "save_quantized", message)
    if is_generic(snapshot.config):
        yield Notice("info", "generic", f"transformers runs {snapshot.name}, more slowly than localspec's own decoder.")
    threads = choose_threads(target, request.weights.threads, every=plan.resident is not None)
    return Opened(request, catalog, entry, snapshot, plan, prompter, target, threads, choice, folding)


def plan_request(options: WeightOptions, choice: draft_choice.Choice) -> PlanRequest:
    """What the options and the drafter ask of a plan on this machine."""
    device = pick_device("auto" if options.offloads else options.device, options.weight_format)
    max_bytes, min_resident = draft_choice.check_memory(options.max_memory), max(choice.exit_layer, 1)
    request = PlanRequest(options, device, max_bytes, min_resident, drafter=choice.snapshot)
    if device == "cuda":
        return replace(request, gpu_bytes=gpu_bytes())
    return replace(request, gpu_bytes=spare_gpu_bytes()) if choice.snapshot and options.device != "cpu" else request


def loaded(snapshot: Snapshot, request: PlanRequest) -> Generator[Loading | Notice, None, tuple[Plan, Resident]]:
    """The best plan that this machine computes correctly and has the memory for, and its decoder. With "auto" a plan
    that turns out not to fit leads to the next, with a Notice."""
    plans = ladder(snapshot, request)
    plan = next(plans)
    while True:
        plan, plans = yield from runnable(plan, plans, snapshot, request)
        found = yield from attempt(snapshot, plan)
        if not isinstance(found, DoesNotFit):
            return plan, found
        smaller = next(plans, None) if request.options.weight_format == AUTO else None
        if smaller is None:
            raise found
        give_back()
        plan = smaller
        yield Notice("warning", "memory", f"{found.message} Loading in {plan} instead.", found.hint)


def attempt(snapshot: Snapshot, plan: Plan) -> Generator[Loading | Notice, None, Resident | DoesNotFit]:
    """The decoder, or why not: without the tracebacks, which hold all that was loaded."""
    try:
        return (yield from load_decoder(snapshot, plan))
    except DoesNotFit as fault:
        why = DoesNotFit(fault.message, hint=fault.hint)
        why.__cause__ = fault.__cause__ and fault.__cause__.with_traceback(None)
        return why


def runnable(
    plan: Plan, plans: Iterator[Plan], snapshot: Snapshot, request: PlanRequest
) -> Generator[Loading | Notice, None, tuple[Plan, Iterator[Plan]]]:
    """The first plan whose format passes its self-check here, and those behind it; only "auto" may go on to another.
    Notices say what "auto" has chosen, and what is offloaded."""
    why, slower, is_auto = None, "", request.options.weight_format == AUTO
    while True:
        try:
            yield from verify(snapshot, plan)
            break
        except EngineError as fault:
            if plan.packed:
                plans, slower = ladder(snapshot, replace(request, allow_cpu_engine=False)), ", which is slower"
            other = next(plans, None) if is_auto else None
            why = why or fault
            if other is None:
                raise why from fault
            plan = other
    if why:
        yield Notice("warning", "format", f"{why.message} Loaded in {plan.weight_format} instead{slower}.", why.hint)
    elif is_auto and plan.resident is None:
        yield from chosen(plan, snapshot)
    if plan.resident is not None:
        yield offloaded(snapshot, plan)
    return plan, plans


def chosen(plan: Plan, snapshot: Snapshot) -> Iterator[Notice]:
    """What "auto" has taken, and why; nothing where that is full precision, or `converted` says it."""
    row = plan.weight_format
    best = choices(snapshot, PlanRequest(device=plan.device, allow_cpu_engine=row.is_packed))[0]
    if row != best:
        yield Notice("info", "format", f"Loaded in {row}: {best} does not fit in memory.")
    elif row.is_packed and not snapshot.stored_as:
        hint = f"Full precision: --quant {FLOATS[0]}."
        yield Notice("info", "format", f"Loaded in {row}, which fits in memory.", hint)


def converted(snapshot: Snapshot, plan: Plan) -> Iterator[Notice]:
    """A Notice where the files' own format is converted to another."""
    if snapshot.stored_as:
        row = plan.weight_format
        hint = f"--quant {row.smaller} takes less memory, and rounds the weights once more."
        message = f"Weights are held in {row}; the files are {snapshot.stored_as}."
        yield Notice("info", "converted", message, hint if row.is_packed and row.smaller else "")


def offloaded(snapshot: Snapshot, plan: Plan) -> Notice:
    """The plan in words, where layers are offloaded."""
    needs = footprint(snapshot, plan.weight_format, plan.context, keep_head=plan.options.keep_head)
    resident = plan.resident or 0
    size = size_words((needs.layers - resident) * needs.layer)
    here = "on the GPU" if plan.device == "cuda" else "in memory"
    stay = f"{resident} of {needs.layers} layers stay {here}"
    read = f"the others ({size}) are read from {plan.offload_source} for every step"
    message = f"Loaded in {plan.weight_format}: {stay}, {read}."
    return Notice(
        "info", "offload", message, "A step costs the same however many tokens it checks: use long drafts, --k 16."
    )


def unsaved(snapshot: Snapshot, plan: Plan) -> str:
    """Why --save-quantized changes nothing for this plan; empty where it does."""
    if plan.packed:
        return "the CPU engine keeps the packed weights of larger models anyway"
    if plan.weight_format.is_float:
        return "floats are not quantised"
    return "it is stored so already" if stored_format(snapshot.config) else ""


def attach(
    opened: Opened, draft: str | EarlyExitDraft | DraftModelDraft, k: str, *, owns_target: bool = False
) -> Generator[Told, None, Model]:
    """A drafter and a session for an open target; several may share one, in turn, when none of them owns it."""
    entry, snapshot, plan, target = opened.entry, opened.snapshot, opened.plan, opened.target
    choice = opened.choice
    if draft != opened.request.draft or choice.kind != "model":  # comparing two tokenizers takes seconds
        choice = draft_choice.choose(draft, entry, snapshot, opened.catalog, calibration.recall(swept_key(opened)))
    k = choice.k if k == "auto" else k
    drafter = yield from make_drafter(choice, opened)
    if choice.notice:
        yield choice.notice
    plain_ms = calibration.recall(timed_key(opened)).plain_ms
    wish = SpecWish.of(k, opened.request.mode) if choice.kind != "off" else SpecWish("off")
    spec = SpecCard(choice.kind, choice.name, k, choice.reason, plain_ms, choice.exit_layer or None, wish.mode)
    can_chat, layers = opened.prompter.can_chat, target.arch.num_layers if is_layered(target) else 0
    place = str(target.device) if plan.resident is None else f"{target.device} and {plan.offload_source}"
    card = ModelCard(entry.name, plan.weight_format.name, place, plan.context, can_chat, layers, snapshot.revision)
    drafters = (drafter.decoder,) if isinstance(drafter, DraftModel) else ()
    yield from told_eager((target, *drafters))
    ready = Ready(card, spec, measure_memory(opened.threads, target, *drafters))
    yield ready
    return Model(
        Parts(
            ready,
            opened.prompter,
            Session(target, drafter if choice.kind == "off" else Guarded(drafter), device=str(target.device)),
            policy=Steered(wish.mode, wish.k, opened.request.probe_every),
            defaults=defaults(entry, snapshot),
            stop_ids=frozenset(snapshot.eos_ids),
            decoders=(target, *drafters),
            owned=(target, *drafters, opened.prompter) if owns_target else drafters,
            threads=Threads(possible(), opened.threads) if owns_target and may_change(opened) else None,
            greedy_drafts=choice.greedy,
            calibration_key=timed_key(opened),
            folding=opened.folding,
        )
    )


def swept_key(opened: Opened) -> str:
    """What a sweep's result belongs to: these weights in this format, whatever count of threads was fastest today."""
    snapshot = opened.snapshot
    return f"{snapshot.folder.resolve()} {snapshot.fingerprint} {opened.plan.label} {opened.target.device}"


def may_change(opened: Opened) -> bool:
    """Nobody has named the count of threads, and no bit depends on it: in the CPU engine, with all layers in memory."""
    return opened.request.weights.threads is None and opened.plan.packed is not None and opened.plan.resident is None


def timed_key(opened: Opened) -> str:
    """What a time belongs to."""
    return f"{swept_key(opened)} x{opened.threads}"


def make_drafter(choice: draft_choice.Choice, opened: Opened) -> Generator[Loading | Notice, None, Drafter]:
    if choice.kind == "early-exit":
        assert is_layered(opened.target)
        return EarlyExit(opened.target, choice.exit_layer)
    if choice.snapshot is None:
        return NoDrafter()
    request = replace(plan_request(opened.request.weights, choice), device=opened.plan.device)
    drafter = yield from load_draft(choice.snapshot, request.asking(ctx=opened.plan.context), opened.plan)
    torch.set_num_threads(1)
    for decoder in (opened.target, drafter):
        if decoder.device == opened.target.device:  # where one is torch's, torch has its threads, whoever is the other
            decoder.set_threads(opened.threads)
    return DraftModel(drafter, opened.target.arch.vocab_size)


def load_draft(snapshot: Snapshot, request: PlanRequest, target: Plan) -> Generator[Loading | Notice, None, Resident]:
    """A model that drafts, on the device of its plan; where the GPU fails, beside the target after all."""
    plan = draft_plan(snapshot, request, target.weight_format)
    if plan.device == target.device:
        yield from verify(snapshot, plan)
        return (yield from load_decoder(snapshot, plan, stage="loading draft weights"))
    found = yield from apart(snapshot, plan)
    if isinstance(found, LocalspecError):
        give_back()
        yield Notice("warning", "draft_device", f"{found.message} {snapshot.name} drafts on the CPU.")
        return (yield from load_draft(snapshot, replace(request, gpu_bytes=None), target))
    yield Notice(
        "info", "draft_device", f"{snapshot.name} drafts on the GPU, in {plan.weight_format}, for a target on the CPU."
    )
    return found


def apart(snapshot: Snapshot, plan: Plan) -> Generator[Loading | Notice, None, Resident | LocalspecError]:
    """A decoder on another device than the target's, or why not: without what was loaded of it."""
    try:
        with gpu_faults():
            yield from verify(snapshot, plan)
            return (yield from load_decoder(snapshot, plan, stage="loading draft weights"))
    except (DoesNotFit, EngineError) as fault:
        fault.__cause__ = None
        return fault.with_traceback(None)
