"""Opens a model for a request: catalogue, snapshot, plan, self-check, weights, drafter, session, threads.

Yields progress and returns the Model. Decides by calling the rooms below; computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

import torch

from localspec.core import calibration
from localspec.core.drain import relay
from localspec.core.errors import DoesNotFit, EngineError, LocalspecError
from localspec.core.events import DraftLength, Loading, ModelCard, Notice, Ready, SpecCard
from localspec.core.locks import Lock
from localspec.core.requests import AskedDraft, LoadRequest, SpecWish, WeightOptions, draft_length
from localspec.core.sizes import size_words
from localspec.core.weight_formats import AUTO, FLOATS
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.table import DRAFTERS
from localspec.engine.foreign import keep_offline
from localspec.engine.generic_arch import is_generic
from localspec.engine.memory import give_back
from localspec.engine.policy import SteerablePolicy
from localspec.engine.protocols import Resident, is_layered
from localspec.engine.session import Session
from localspec.loading.devices import gpu_bytes, gpu_faults, pick_device, spare_gpu_bytes, unused
from localspec.loading.footprint import footprint
from localspec.loading.kernels import load_decoder, verify
from localspec.loading.plan import Plan, draft_plan, ladder
from localspec.loading.plan_request import PlanRequest, check_memory, choices
from localspec.loading.resident import choose_threads, measure_memory, possible
from localspec.loading.threads import Threads
from localspec.models.catalog import Catalog, Entry
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.models.folding import Folding
from localspec.models.prequantised.stored import stored_format
from localspec.models.prompt_sandbox import SandboxedPrompter
from localspec.runtime import draft_choice
from localspec.runtime import loaded as loaded_models
from localspec.runtime.model import Model, Parts, graph_notices
from localspec.runtime.sampling_defaults import defaults

Opening = Loading | Notice | Ready


@dataclass(frozen=True, slots=True)
class Opened:
    """A target in memory, and what attaching a drafter needs. `choice`: the drafter that it was planned with;
    `mark`: that it is loaded."""

    request: LoadRequest
    catalog: Catalog
    entry: Entry
    snapshot: Snapshot
    plan: Plan
    prompter: SandboxedPrompter
    target: Resident
    threads: int
    choice: draft_choice.Choice
    mark: Lock | None
    folding: Folding | None = None


def open_model(request: LoadRequest) -> Generator[Opening, None, Model]:
    """Loading and Notices, then Ready; returns the Model, to which all of it belongs."""
    with gpu_faults():
        return (yield from without_repeats(open_whole(request)))


def open_whole(request: LoadRequest) -> Generator[Opening, None, Model]:
    opened = yield from open_target(request)
    return (yield from attach(opened, request.draft, request.k, owns_target=True))


def without_repeats(steps: Generator[Opening, None, Model]) -> Generator[Opening, None, Model]:
    """Drops Notices that the draft repeats after the target."""
    seen: set[tuple[str, str]] = set()

    def new(event: Opening) -> Opening | None:
        if not isinstance(event, Notice):
            return event
        notice = (event.code, event.message)
        if notice in seen:
            return None
        seen.add(notice)
        return event

    return relay(steps, new)


def open_target(request: LoadRequest) -> Generator[Loading | Notice, None, Opened]:
    """The target alone. What can be refused cheaply is refused before any weight is read."""
    keep_offline()
    draft_length(request.k)
    draft_choice.check_threads(request.weights.threads)
    catalog = Catalog.load()
    entry = catalog.resolve(request.model)
    marked = loaded_models.mark(entry.path)
    snapshot = open_snapshot(entry.path, entry.key)
    choice = draft_choice.choose(request.draft, entry, snapshot, catalog)
    draft_choice.check_format(request.weights.draft_format, choice)
    table = entry.folding if request.folding else None
    folding = Folding.open(entry.path / table.words, table.sums) if table else None
    prompter = SandboxedPrompter.open(snapshot)
    if request.weights.device == "auto" and (reason := unused()):
        yield Notice("warning", "device", f"{reason.message} Using the CPU.", reason.hint)
    plan, target = yield from loaded(snapshot, plan_request(request.weights, choice))
    yield from converted(snapshot, plan)
    if request.weights.save_quantized and (why := unsaved(snapshot, plan)):
        message = f"--save-quantized changes nothing for {snapshot.name} in {plan.weight_format}: {why}."
        yield Notice("info", "save_quantized", message)
    if is_generic(snapshot.config):
        yield Notice("info", "generic", f"transformers runs {snapshot.name}, more slowly than localspec's own decoder.")
    threads = choose_threads(target, request.weights.threads, every=plan.resident is not None)
    return Opened(request, catalog, entry, snapshot, plan, prompter, target, threads, choice, marked, folding)


def plan_request(options: WeightOptions, choice: draft_choice.Choice) -> PlanRequest:
    """What the options and the drafter ask of a plan on this machine."""
    device = pick_device("auto" if options.offloads else options.device, options.weight_format)
    max_bytes, min_resident = check_memory(options.max_memory), max(choice.exit_layer, 1)
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
        hint = f"--quant {row.smaller} takes less memory, but rounds the weights again."
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
    return "it is stored in this format already" if stored_format(snapshot.config) else ""


def attach(
    opened: Opened, draft: AskedDraft, k: DraftLength, *, owns_target: bool = False
) -> Generator[Opening, None, Model]:
    """Attaches a drafter and a session to an open target; several Models can share one that none of them owns."""
    entry, snapshot, plan, target = opened.entry, opened.snapshot, opened.plan, opened.target
    choice = opened.choice
    if draft != opened.request.draft or choice.snapshot is None:  # comparing two tokenizers takes seconds
        choice = draft_choice.choose(draft, entry, snapshot, opened.catalog, calibration.recall(swept_key(opened)))
    k = choice.k if k == "auto" else draft_length(k)
    own = yield from draft_decoder(choice, opened)
    drafter = DRAFTERS[choice.kind].make(choice.argument, target, own) if choice.kind in DRAFTERS else NoDrafter()
    if choice.notice:
        yield choice.notice
    plain_ms = calibration.recall(timed_key(opened)).plain_ms
    wish = SpecWish.of(k, opened.request.mode) if choice.kind != "off" else SpecWish("off")
    spec = SpecCard(choice.kind, choice.name, k, choice.reason, plain_ms, choice.exit_layer or None, wish.mode)
    can_chat, layers = opened.prompter.can_chat, target.arch.num_layers if is_layered(target) else 0
    place = str(target.device) if plan.resident is None else f"{target.device} and {plan.offload_source}"
    sampling = defaults(entry, snapshot)
    card = ModelCard(
        entry.name, plan.weight_format.name, place, plan.context, can_chat, layers, snapshot.revision, sampling.given
    )
    drafters = (own,) if own is not None else ()
    marks = [
        opened.mark if owns_target else None,
        loaded_models.mark(choice.snapshot.folder) if choice.snapshot else None,
    ]
    yield from graph_notices((target, *drafters))
    ready = Ready(card, spec, measure_memory(opened.threads, target, *drafters))
    yield ready
    return Model(
        Parts(
            ready,
            opened.prompter,
            Session(target, drafter if choice.kind == "off" else Guarded(drafter), device=str(target.device)),
            policy=SteerablePolicy(wish.mode, wish.k, opened.request.probe_every),
            defaults=sampling,
            stop_ids=frozenset(snapshot.eos_ids),
            decoders=(target, *drafters),
            owned=(*((target, opened.prompter) if owns_target else ()), *drafters, *filter(None, marks)),
            threads=Threads(possible(), opened.threads) if owns_target and may_change(opened) else None,
            greedy_draft=choice.greedy,
            calibration_key=timed_key(opened),
            folding=opened.folding,
        )
    )


def swept_key(opened: Opened) -> str:
    """The key of a sweep's result: these weights in this format, whatever the count of threads."""
    snapshot = opened.snapshot
    return f"{snapshot.folder.resolve()} {snapshot.fingerprint} {opened.plan.label} {opened.target.device}"


def may_change(opened: Opened) -> bool:
    """Whether the count of threads can change between rounds: it was not given, and no bit depends on it, which holds
    in the CPU engine with all layers in memory."""
    return opened.request.weights.threads is None and opened.plan.packed is not None and opened.plan.resident is None


def timed_key(opened: Opened) -> str:
    """The key of a measured time."""
    return f"{swept_key(opened)} x{opened.threads}"


def draft_decoder(choice: draft_choice.Choice, opened: Opened) -> Generator[Loading | Notice, None, Resident | None]:
    """The decoder of a drafter with a model of its own; both decoders then share the threads."""
    if choice.snapshot is None:
        return None
    request = replace(plan_request(opened.request.weights, choice), device=opened.plan.device)
    drafter = yield from load_draft(choice.snapshot, request.asking(ctx=opened.plan.context), opened.plan)
    torch.set_num_threads(1)
    for decoder in (opened.target, drafter):
        if decoder.device == opened.target.device:  # where one is torch's, torch has its threads, whoever is the other
            decoder.set_threads(opened.threads)
    return drafter


def load_draft(snapshot: Snapshot, request: PlanRequest, target: Plan) -> Generator[Loading | Notice, None, Resident]:
    """Loads a draft model where its plan says; beside the target when the GPU fails."""
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
    """Loads a decoder on another device than the target's; the error, without what was loaded, if that fails."""
    try:
        with gpu_faults():
            yield from verify(snapshot, plan)
            return (yield from load_decoder(snapshot, plan, stage="loading draft weights"))
    except (DoesNotFit, EngineError) as fault:
        fault.__cause__ = None
        return fault.with_traceback(None)
