"""Opens a model for a request: catalogue, snapshot, plan, self-check, weights, drafter, session, threads.

Yields progress and returns the Model. Decides by calling the rooms below; computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from localspec.core import calibration
from localspec.core.drain import relay
from localspec.core.errors import DoesNotFit, EngineError, LocalspecError
from localspec.core.events import DraftLength, Loading, ModelCard, Notice, Ready, SpecCard
from localspec.core.requests import AskedDraft, LoadRequest, SpecWish, draft_length
from localspec.core.sizes import size_words
from localspec.core.weight_formats import GPTQ, stored_kind
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.table import DRAFTERS
from localspec.engine.foreign import keep_offline
from localspec.engine.generic_arch import is_generic
from localspec.engine.linear import make_form
from localspec.engine.memory import give_back
from localspec.engine.policy import Steered
from localspec.engine.protocols import Resident, is_layered
from localspec.engine.session import Session
from localspec.loading.devices import gpu_bytes, gpu_faults, pick_device, spare_gpu_bytes, unused
from localspec.loading.footprint import ELEMENT_BYTES, footprint
from localspec.loading.plan import DENSE, Plan, Wish, choices, draft_plan, ladder
from localspec.loading.resident import choose_threads, measure_memory, possible
from localspec.loading.self_check.config import admit
from localspec.loading.self_check.cpu import admit_packed
from localspec.loading.self_check.formats import STAND_IN, admit_format
from localspec.loading.threads import Threads
from localspec.loading.torch import load_decoder
from localspec.models.catalog import Catalog, Entry
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.models.folding import Folding
from localspec.models.prompt_sandbox import SandboxedPrompter
from localspec.runtime import draft_choice
from localspec.runtime.model import Model, Parts, graph_notices
from localspec.runtime.sampling_defaults import defaults

if TYPE_CHECKING:
    from localspec.engine.cpu.program import Program

Opening = Loading | Notice | Ready


@dataclass(frozen=True, slots=True)
class Opened:
    """A target in memory, and what attaching a drafter needs. `choice`: the drafter that it was planned with."""

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
    draft_choice.check_threads(request.threads)
    catalog = Catalog.load()
    entry = catalog.resolve(request.model)
    snapshot = open_snapshot(entry.path, entry.key)
    choice = draft_choice.choose(request.draft, entry, snapshot, catalog)
    draft_choice.check_format(request.draft_quant, choice)
    table = entry.folding if request.folding else None
    folding = Folding.open(entry.path / table.words, table.sums) if table else None
    prompter = SandboxedPrompter.open(snapshot)
    if request.device == "auto" and (reason := unused()):
        yield Notice("warning", "device", f"{reason.message} The CPU computes.", reason.hint)
    plan, target = yield from loaded(snapshot, wish_of(request, choice))
    yield from converted(snapshot, plan)
    if plan.save_quantized and (why := unsaved(snapshot, plan)):
        message = f"--save-quantized changes nothing for {snapshot.name} in {plan.quant}: {why}."
        yield Notice("info", "save_quantized", message)
    if is_generic(snapshot.config):
        yield Notice("info", "generic", f"transformers runs {snapshot.name}, more slowly than localspec's own decoder.")
    threads = choose_threads(target, request.threads, every=plan.resident is not None)
    return Opened(request, catalog, entry, snapshot, plan, prompter, target, threads, choice, folding)


def wish_of(request: LoadRequest, choice: draft_choice.Choice) -> Wish:
    """What the request asks of a plan, and what the drafter must find in memory."""
    asked = "auto" if request.device == "offload" else request.device
    limit, least = draft_choice.check_memory(request.max_memory), max(choice.exit_layer, 1)
    device = pick_device(asked, request.quant)
    wish = Wish.of(request, device, limit=limit, least=least, drafter=choice.snapshot)
    if device == "cuda":
        return replace(wish, gpu_bytes=gpu_bytes())
    return replace(wish, gpu_bytes=spare_gpu_bytes()) if choice.snapshot and request.device != "cpu" else wish


def loaded(snapshot: Snapshot, wish: Wish) -> Generator[Loading | Notice, None, tuple[Plan, Resident]]:
    """The best plan that this machine computes rightly and has the memory for, and its decoder. With "auto" one that
    turns out not to fit leads to the next, with a Notice."""
    plans = ladder(snapshot, wish)
    plan = next(plans)
    while True:
        plan, plans = yield from runnable(plan, plans, snapshot, wish)
        found = yield from attempt(snapshot, plan)
        if not isinstance(found, DoesNotFit):
            return plan, found
        smaller = next(plans, None) if wish.quant == "auto" else None
        if smaller is None:
            raise found
        give_back()
        plan = smaller
        yield Notice("warning", "memory", f"{found.message} The next best is {plan}.", found.hint)


def attempt(snapshot: Snapshot, plan: Plan) -> Generator[Loading | Notice, None, Resident | DoesNotFit]:
    """The decoder, or why not: without the tracebacks, which hold all that was loaded."""
    try:
        return (yield from load_decoder(snapshot, plan))
    except DoesNotFit as fault:
        why = DoesNotFit(fault.message, hint=fault.hint)
        why.__cause__ = fault.__cause__ and fault.__cause__.with_traceback(None)
        return why


def runnable(
    plan: Plan, plans: Iterator[Plan], snapshot: Snapshot, wish: Wish
) -> Generator[Loading | Notice, None, tuple[Plan, Iterator[Plan]]]:
    """The plan and those behind it, once this machine is known to compute its format rightly; where "auto" leaves the
    choice, the first that it does. Notices say what "auto" has chosen, and what is elsewhere."""
    why, slower = None, ""
    while True:
        try:
            yield from admitted(snapshot, plan)
            break
        except EngineError as fault:
            if plan.packed:
                plans, slower = ladder(snapshot, replace(wish, may_pack=False)), ", which is slower"
            other = next(plans, None) if wish.quant == "auto" else None
            why = why or fault
            if other is None:
                raise why from fault
            plan = other
    if why:
        yield Notice("warning", "format", f"{why.message} Weights are in {plan.quant}{slower}.", why.hint)
    elif wish.quant == "auto" and plan.resident is None:
        yield from chosen(plan, snapshot)
    if plan.resident is not None:
        yield offloaded(snapshot, plan)
    return plan, plans


def chosen(plan: Plan, snapshot: Snapshot) -> Iterator[Notice]:
    """What "auto" has taken, and why; nothing where that is what torch does best, or `converted` says it."""
    best = choices(snapshot, Wish(device=plan.device, may_pack=plan.packed is not None))[0]
    if plan.quant == "int8" and plan.packed:
        if snapshot.stored_as:
            return
        hint = f"Use --quant {DENSE[0]} for the weights as they are."
        yield Notice("info", "format", "Weights are in int8, which fits in memory.", hint)
    elif plan.quant != best:
        yield Notice("info", "format", f"Weights are in {plan.quant}: {best} does not fit in memory.")


def converted(snapshot: Snapshot, plan: Plan) -> Iterator[Notice]:
    """That the files have the weights in another format, which they cannot stay in."""
    if snapshot.stored_as:
        hint = "--quant int4 takes less memory, and rounds them once more." if plan.packed == "int8" else ""
        yield Notice(
            "info", "converted", f"Weights are held in {plan.quant}; the files are {snapshot.stored_as}.", hint
        )


def offloaded(snapshot: Snapshot, plan: Plan) -> Notice:
    """The plan in words, where layers come and go."""
    needs = footprint(snapshot, plan.quant, plan.context, keep_head=plan.keep_head, device=plan.device)
    resident = plan.resident or 0
    size = size_words((needs.layers - resident) * needs.layer)
    here = "on the GPU" if plan.device == "cuda" else "in memory"
    stay = f"{resident} of {needs.layers} layers stay {here}"
    message = f"Weights are in {plan.quant}: {stay}, the others ({size}) come from {plan.place} for every step."
    return Notice(
        "info", "offload", message, "A step costs the same however many tokens it checks: draft long, --k 16."
    )


def unsaved(snapshot: Snapshot, plan: Plan) -> str:
    """Why --save-quantized keeps no more on disk than is kept without it; empty where it does."""
    if plan.packed:
        return "the CPU engine keeps the packed weights of larger models anyway"
    if plan.quant in ELEMENT_BYTES:
        return "floats are not quantised"
    return "it is stored so already" if stored_kind(snapshot.config) else ""


def admitted(snapshot: Snapshot, plan: Plan) -> Generator[Loading | Notice, None, None]:
    """Nothing more, or an error: that the decoder of this plan computes this configuration wrongly, or cannot run."""
    yield Loading("checking the configuration", 0, 1, "steps")  # seconds where transformers must be imported for it
    if is_generic(snapshot.config):  # it is checked with its own weights, when they are there
        if plan.quant != GPTQ:
            admit_format(STAND_IN, make_form(plan.quant, plan.device, threshold=plan.int8_threshold))
        return
    admit(snapshot.config)
    if plan.packed:
        program = yield from compiled_engine()
        admit_packed(snapshot.config, plan.packed, program)
    else:
        admit_format(snapshot.config, make_form(plan.quant, plan.device, threshold=plan.int8_threshold))


def compiled_engine() -> Generator[Loading | Notice, None, Program]:
    """The CPU engine, compiled the first time; a Notice where it will have to be compiled every time."""
    try:
        from localspec.engine.cpu.isa import choose
        from localspec.engine.cpu.program import loading
    except ImportError as fault:
        raise EngineError(
            f"The CPU engine needs {fault.name}, which is not installed.", hint="Use --quant fp32 or bf16."
        ) from fault
    program = yield from relay(loading(choose()), compiling)
    if not program.kept:
        message = "The compiled engine cannot be kept on disk, so every start compiles it again."
        yield Notice("info", "cache", message, "Set LOCALSPEC_CACHE_DIR to a folder that can be written.")
    return program


def compiling(step: tuple[int, int] | None) -> Loading:
    """How far it is; None while another process does it."""
    if step is None:
        return Loading("waiting for another start, which compiles the engine", 0, 1, "steps")
    return Loading("compiling the engine (once)", *step, unit="steps")


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
    place = str(target.device) if plan.resident is None else f"{target.device} and {plan.place}"
    card = ModelCard(entry.name, plan.quant, place, plan.context, can_chat, layers, snapshot.revision)
    drafters = (own,) if own is not None else ()
    yield from graph_notices((target, *drafters))
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
            greedy_draft=choice.greedy,
            calibration_key=timed_key(opened),
            folding=opened.folding,
        )
    )


def swept_key(opened: Opened) -> str:
    """The key of a sweep's result: these weights in this format, whatever the count of threads."""
    snapshot = opened.snapshot
    return f"{snapshot.folder.resolve()} {snapshot.fingerprint} {opened.plan.variant} {opened.target.device}"


def may_change(opened: Opened) -> bool:
    """Whether the count of threads can change between rounds: it was not given, and no bit depends on it, which holds
    in the CPU engine with all layers in memory."""
    return opened.request.threads is None and opened.plan.packed is not None and opened.plan.resident is None


def timed_key(opened: Opened) -> str:
    """The key of a measured time."""
    return f"{swept_key(opened)} x{opened.threads}"


def draft_decoder(choice: draft_choice.Choice, opened: Opened) -> Generator[Loading | Notice, None, Resident | None]:
    """The decoder of a drafter with a model of its own; both decoders then share the threads."""
    if choice.snapshot is None:
        return None
    wish = replace(wish_of(opened.request, choice), device=opened.plan.device, context=opened.plan.context)
    drafter = yield from load_draft(choice.snapshot, wish, opened.plan)
    torch.set_num_threads(1)
    for decoder in (opened.target, drafter):
        if decoder.device == opened.target.device:  # where one is torch's, torch has its threads, whoever is the other
            decoder.set_threads(opened.threads)
    return drafter


def load_draft(snapshot: Snapshot, wish: Wish, target: Plan) -> Generator[Loading | Notice, None, Resident]:
    """Loads a draft model where its plan says; beside the target when the GPU fails."""
    plan = draft_plan(snapshot, wish, target.quant)
    if plan.device == target.device:
        yield from admitted(snapshot, plan)
        return (yield from load_decoder(snapshot, plan, stage="loading draft weights"))
    found = yield from apart(snapshot, plan)
    if isinstance(found, LocalspecError):
        give_back()
        yield Notice("warning", "draft_device", f"{found.message} {snapshot.name} drafts on the CPU.")
        return (yield from load_draft(snapshot, replace(wish, gpu_bytes=None), target))
    yield Notice(
        "info", "draft_device", f"{snapshot.name} drafts on the GPU, in {plan.quant}, for a target on the CPU."
    )
    return found


def apart(snapshot: Snapshot, plan: Plan) -> Generator[Loading | Notice, None, Resident | LocalspecError]:
    """Loads a decoder on another device than the target's; the error, without what was loaded, if that fails."""
    try:
        with gpu_faults():
            yield from admitted(snapshot, plan)
            return (yield from load_decoder(snapshot, plan, stage="loading draft weights"))
    except (DoesNotFit, EngineError) as fault:
        fault.__cause__ = None
        return fault.with_traceback(None)
