"""Opens a model for a request: catalogue, snapshot, plan, self-check, weights, threads, then a drafter.

Yields progress and returns the Model. Decides by calling the rooms below; computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from localspec.core.drain import relay
from localspec.core.errors import DoesNotFit, EngineError
from localspec.core.events import Loading, Notice
from localspec.core.requests import LoadRequest
from localspec.core.sizes import size_words
from localspec.core.weight_formats import AUTO, FLOATS
from localspec.engine.generic_arch import is_generic
from localspec.engine.memory import give_back
from localspec.engine.protocols import Resident
from localspec.engine.transformers_faults import keep_offline
from localspec.loading.devices import gpu_faults, unused
from localspec.loading.footprint import footprint
from localspec.loading.kernels import load_decoder, verify
from localspec.loading.plan import Plan, ladder
from localspec.loading.plan_request import PlanRequest, choices
from localspec.loading.resident_decoder import choose_threads
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.models.prequantised.stored_format import stored_format
from localspec.models.prompt_sandbox import SandboxedPrompter
from localspec.models.spelling import folding_of
from localspec.runtime import draft_choice
from localspec.runtime import load_marks as loaded_models
from localspec.runtime.drafter_setup import attach_slots
from localspec.runtime.open_target import Opening, OpenTarget, plan_request
from localspec.runtime.slots import Slots


def open_model(request: LoadRequest) -> Generator[Opening, None, Slots]:
    """Loading and Notices, then Ready; returns the Slots, to which all of it belongs."""
    with gpu_faults():
        return (yield from without_repeats(open_whole(request)))


def open_whole(request: LoadRequest) -> Generator[Opening, None, Slots]:
    return (yield from attach_slots((yield from open_target(request))))


def without_repeats(steps: Generator[Opening, None, Slots]) -> Generator[Opening, None, Slots]:
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


def open_target(request: LoadRequest) -> Generator[Loading | Notice, None, OpenTarget]:
    """The target alone. What can be refused cheaply is refused before any weight is read."""
    keep_offline()
    catalog = Catalog.load()
    entry = draft_choice.check(request, catalog)
    marked = loaded_models.mark(entry.path)
    snapshot = open_snapshot(entry.path, entry.name)
    choice = draft_choice.choose(request.draft, entry, snapshot, catalog)
    draft_choice.check_format(request.weights.draft_format, choice)
    folding = folding_of(entry) if request.folding else None
    prompter = SandboxedPrompter.open(snapshot)
    if request.weights.device == "auto" and (reason := unused()):
        yield Notice("warning", "device", f"{reason.message} Using the CPU.", reason.hint)
    choice = draft_choice.fitting(choice, request.draft, snapshot, plan_request(request.weights, choice))
    plan, target = yield from loaded(snapshot, plan_request(request.weights, choice))
    yield from converted(snapshot, plan)
    if request.weights.save_quantized and (why := unsaved(snapshot, plan)):
        message = f"--save-quantized changes nothing for {snapshot.name} in {plan.weight_format}: {why}."
        yield Notice("info", "save_quantized", message)
    if is_generic(snapshot.config):
        yield Notice("info", "generic", f"transformers runs {snapshot.name}, more slowly than localspec's own decoder.")
    is_offloaded = plan.resident is not None
    threads = choose_threads(target, request.weights.threads, every=is_offloaded, width=plan.parallel)
    return OpenTarget(request, catalog, entry, snapshot, plan, prompter, target, threads, choice, marked, folding)


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
    """The first plan whose format passes its self-check here, and those after it; only "auto" may go on to another.
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
        needs = footprint(snapshot, row, plan.context, keep_head=plan.options.keep_head)
        size = size_words(needs.tables + needs.layers * needs.layer)
        bits = f"{row.name.removeprefix('int')}-bit numbers ({row}, {size})"
        stored = f"The weights are stored as {bits}: smaller and faster."
        yield Notice("info", "format", stored, f"Exact but slower: --quant {FLOATS[0]}")


def converted(snapshot: Snapshot, plan: Plan) -> Iterator[Notice]:
    """A Notice where the files' own format is converted to another."""
    if snapshot.stored_as:
        row = plan.weight_format
        hint = f"--quant {row.smaller} needs less memory, but rounds the weights again."
        message = f"Loaded in {row}; the files are {snapshot.stored_as}."
        yield Notice("info", "converted", message, hint if row.is_packed and row.smaller else "")


def offloaded(snapshot: Snapshot, plan: Plan) -> Notice:
    """The plan in words, where layers are offloaded."""
    needs = footprint(snapshot, plan.weight_format, plan.context, keep_head=plan.options.keep_head)
    resident = plan.resident or 0
    size = size_words((needs.layers - resident) * needs.layer)
    here = "on the GPU" if plan.device == "cuda" else "in memory"
    stay = f"{resident} of {needs.layers} layers stay {here}"
    read = f"the others ({size}) are read from {plan.offload_source} for every round"
    message = f"Loaded in {plan.weight_format}: {stay}, {read}."
    return Notice(
        "info", "offload", message, "A round costs the same however many tokens it checks: use long drafts, --k 16."
    )


def unsaved(snapshot: Snapshot, plan: Plan) -> str:
    """Why --save-quantized changes nothing for this plan; empty where it does."""
    if plan.packed:
        return "the CPU engine keeps the packed weights of larger models anyway"
    if plan.weight_format.is_float:
        return "floats are not quantised"
    return "it is stored in this format already" if stored_format(snapshot.config) else ""
