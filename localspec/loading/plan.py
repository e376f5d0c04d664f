"""The plan decided before loading: weight format, context, device, and which layers are resident, by what fits.

Works from a snapshot's headers and config alone. Knows nothing about torch: the request says how much a GPU has free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from localspec.core.errors import DoesNotFit, UsageError
from localspec.core.main_memory import available_bytes
from localspec.core.requests import WeightOptions
from localspec.core.sizes import size_words
from localspec.core.weight_formats import (
    AUTO,
    INT8_THRESHOLD,
    SMALLEST_ANYWHERE,
    Device,
    WeightFormat,
    auto_formats,
    find_format,
    is_on,
)
from localspec.engine.cpu.formats import PackedFormat
from localspec.engine.generic_arch import GenericArch, is_generic, read_any
from localspec.loading.footprint import Footprint, footprint, packed_format
from localspec.loading.plan_request import (
    DEFAULT_CONTEXT,
    PlanRequest,
    check,
    check_generic,
    choices,
    choose_context,
    offloadable,
)
from localspec.models.checkpoint import Snapshot
from localspec.models.prequantised.stored_format import stored_format

SMALLER_MODEL = "a smaller model"
WITHOUT = "--draft off"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a model is loaded, `options` being what was asked for. `context` in tokens.

    `resident`: how many layers stay in memory while the others are offloaded; None for all of them. `parallel`: how
    many contexts it has.
    """

    weight_format: WeightFormat
    context: int
    options: WeightOptions = field(default_factory=WeightOptions)
    resident: int | None = None
    parallel: int = 1

    @property
    def device(self) -> Device:
        return self.weight_format.device

    @property
    def label(self) -> str:
        """The weight format and all else that decides the speed: plans of one label are equally fast."""
        head = "+head" if self.options.keep_head else ""
        threshold = f"+{self.options.int8_threshold:g}" if self.options.int8_threshold != INT8_THRESHOLD else ""
        resident = "" if self.resident is None else f"+resident{self.resident}"
        return f"{self.weight_format}{head}{threshold}{resident}"

    @property
    def packed(self) -> PackedFormat | None:
        """The CPU engine's records, where that engine is what runs."""
        return packed_format(self.weight_format)

    @property
    def offload_source(self) -> str:
        """The memory in which offloaded layers are stored, in words."""
        return "main memory" if self.device == "cuda" else "disk"

    def __str__(self) -> str:
        offloaded = "" if self.resident is None else f" with layers from {self.offload_source}"
        return f"{self.weight_format}{offloaded}"


def make_plan(snapshot: Snapshot, request: PlanRequest, *, held_bytes: int = 0) -> Plan:
    """The best plan that fits."""
    return next(ladder(snapshot, request, held_bytes=held_bytes))


def ladder(snapshot: Snapshot, request: PlanRequest, *, held_bytes: int = 0) -> Iterator[Plan]:
    """Every plan that fits, best first; DoesNotFit, with what is missing, where there is none. `held_bytes` would be
    freed first."""
    check(request.options)
    arch = read_any(snapshot.config)
    choices(snapshot, request)  # a model that is stored in one format is refused in others before all else
    if isinstance(arch, GenericArch):
        check_generic(arch, request)
    context = choose_context(snapshot.name, arch.max_context, request.options.ctx)
    request, free = request.asking(ctx=context), available_bytes() + held_bytes
    plans = rungs(snapshot, request, free)
    first = next(plans, None)
    if first is None:
        raise too_large(snapshot, request, free)
    yield first
    yield from plans


def rungs(snapshot: Snapshot, request: PlanRequest, free: int) -> Iterator[Plan]:
    """The plans that fit with so many bytes free in main memory, best first."""
    limit, options = bytes_free(request, free), request.options
    context = options.ctx or DEFAULT_CONTEXT
    for row in () if request.offloads_most else choices(snapshot, request):
        for parallel in request.parallels:
            if limit is None or needed(snapshot, request.asking(parallel=parallel), row).whole <= limit:
                yield Plan(checked_head(row, options), context, options, parallel=parallel)
                break
    for row in offloadable(snapshot, request):
        needs = needed(snapshot, request, row)
        most = request.min_resident if limit is None else needs.resident(limit)
        resident = request.min_resident if request.offloads_most else min(most, needs.layers - 1)
        if request.min_resident <= most and not short_of_main_memory(request, needs, resident, free):
            yield Plan(checked_head(row, options), context, options, resident, request.least_parallel)


def bytes_free(request: PlanRequest, free: int) -> int | None:
    """Memory for what is computed with: a GPU has its own. None where only loading will show it."""
    known = request.gpu_bytes if request.device == "cuda" else free
    return min((size for size in (known, request.max_bytes) if size is not None), default=None)


def short_of_main_memory(request: PlanRequest, needs: Footprint, resident: int, free: int) -> bool:
    """Whether main memory is too small for the layers that a GPU offloads to it."""
    return request.device == "cuda" and (needs.layers - resident) * needs.layer > free


def checked_head(row: WeightFormat, options: WeightOptions) -> WeightFormat:
    """The format, which must let the head stay in 16 bits where that was asked for."""
    if row.is_packed and options.keep_head:
        raise UsageError(
            f"The CPU engine's {row} has its head in eight bits or four.",
            hint=f"Use --quant {SMALLEST_ANYWHERE}, or leave out --keep-head.",
        )
    return row


def needed(snapshot: Snapshot, request: PlanRequest, row: WeightFormat) -> Footprint:
    """Memory for the model in this format with its drafter; the larger workspace serves both."""
    context = request.options.ctx or DEFAULT_CONTEXT
    own = footprint(snapshot, row, context, keep_head=request.options.keep_head, parallel=request.least_parallel)
    drafter = drafter_footprint(request, row)
    return replace(own, drafter=drafter.whole - min(own.workspace, drafter.workspace)) if drafter else own


def drafter_footprint(request: PlanRequest, target: WeightFormat) -> Footprint | None:
    """Memory for the drafter alone, beside a target in this format; None where it takes none of the same memory."""
    if request.drafter is None:
        return None
    plan = draft_plan(request.drafter, request, target)
    if plan.device != request.device:
        return None
    keep_head, parallel = request.options.keep_head, request.least_parallel
    return footprint(request.drafter, plan.weight_format, plan.context, keep_head=keep_head, parallel=parallel)


def drafter_hinders(snapshot: Snapshot, request: PlanRequest, *, held_bytes: int = 0) -> bool:
    """Whether the target is too large with its drafter, or has layers offloaded, and alone it is not."""
    both, alone = (slowness(snapshot, one, held_bytes) for one in (request, request.alone))
    return both > alone


def slowness(snapshot: Snapshot, request: PlanRequest, held_bytes: int) -> int:
    """0 where the best plan that fits has all layers in memory, 1 with offloaded ones; 2 where none fits."""
    try:
        return int(make_plan(snapshot, request, held_bytes=held_bytes).resident is not None)
    except DoesNotFit:
        return 2


def draft_plan(drafter: Snapshot, request: PlanRequest, target: WeightFormat) -> Plan:
    """The plan of a model that drafts for a target in this format: whole on the GPU where it fits there, else in the
    memory that the target is in."""
    context = min(request.options.ctx or DEFAULT_CONTEXT, read_any(drafter.config).max_context)
    request = replace(request, drafter=None, min_resident=1, max_bytes=None).asking(ctx=context, device=request.device)
    if request.device == "cpu" and request.gpu_bytes is not None and (found := plan_on_gpu(drafter, request)):
        return found
    return Plan(draft_format(drafter, target, request.options.draft_format), context, request.options)


def plan_on_gpu(drafter: Snapshot, request: PlanRequest) -> Plan | None:
    """A whole drafter on the GPU, in the format that was asked for, or the best that fits."""
    asked = request.options.draft_format
    if is_on(asked, "cpu") and not is_on(asked, "cuda"):
        return None
    if asked != AUTO:
        own_format(drafter, asked, "cuda")
    on_gpu = replace(request, device="cuda").asking(weight_format=asked)
    plan = next(rungs(drafter, on_gpu, free=0), None)
    return plan if plan and plan.resident is None else None


def draft_format(drafter: Snapshot, target: WeightFormat, asked: str = AUTO) -> WeightFormat:
    """The drafter's format beside a target: as asked, else the target's, where the drafter is not stored in another and
    supports it."""
    if asked != AUTO:
        return own_format(drafter, asked, target.device)
    if target.is_read_only or (target.is_packed and is_generic(drafter.config)):
        return choices(drafter, PlanRequest(device=target.device))[0]
    return find_format(stored_format(drafter.config) or target.name, target.device)


def own_format(drafter: Snapshot, asked: str, device: Device) -> WeightFormat:
    """The format that was asked for a drafter; UsageError where it cannot have it on this device."""
    request = PlanRequest(WeightOptions(asked), device)
    try:
        check(request.options)
        arch, found = read_any(drafter.config), choices(drafter, request)[0]
        if isinstance(arch, GenericArch):
            check_generic(arch, request)
        return found
    except UsageError as fault:
        raise UsageError(fault.message, hint=fault.hint.replace("--quant", "--draft-quant")) from fault


def too_large(snapshot: Snapshot, request: PlanRequest, free: int) -> DoesNotFit:
    """DoesNotFit for a model whose smallest plan needs more than there is."""
    limit, on_gpu = bytes_free(request, free), request.device == "cuda"
    limited, where = limit == request.max_bytes, " on the GPU" if on_gpu else ""
    has = f"--max-memory is {size_words(limit or 0)}" if limited else f"{size_words(limit or 0)} free{where}"
    if offloaded := offloadable(snapshot, request):
        row = min(offloaded, key=lambda row: needed(snapshot, request, row).offloaded(request.min_resident))
        needs = needed(snapshot, request, row)
        least = needs.offloaded(request.min_resident)
        if limit is None or least <= limit:
            return short_beside_gpu(snapshot, row, needs, free)
        message = (
            f"Not enough memory for {snapshot.name} in {row}, even with {needs.layers - request.min_resident} of its"
            f" {needs.layers} layers offloaded (needs {size_words(least)}, {has})."
        )
        ways = [WITHOUT] if fits(snapshot, request.alone, free) else []
        return DoesNotFit(message, hint=hint_of(ways, request, limited=limited))
    row = choices(snapshot, request)[-1]
    whole = size_words(needed(snapshot, request, row).whole)
    message = f"Not enough memory for {snapshot.name} in {row} (needs {whole}, {has})."
    ways = [way for way, other in others(request).items() if fits(snapshot, other, free)]
    return DoesNotFit(message, hint=hint_of(ways, request, limited=limited))


def hint_of(ways: list[str], request: PlanRequest, *, limited: bool) -> str:
    """What to try where nothing fits. `ways`: what would; `limited`: the memory is short because a limit was set."""
    ways = ways or ["a larger --max-memory" if limited else elsewhere(request.device == "cuda")]
    return f"Try {', '.join(ways)} or {less(request.least_parallel)}."


def others(request: PlanRequest) -> dict[str, PlanRequest]:
    """What else could be asked for, by its flag."""
    return {
        WITHOUT: request.alone,
        f"--quant {AUTO}": request.asking(weight_format=AUTO),
        "--device offload": request.asking(device="offload"),
    }


def fits(snapshot: Snapshot, request: PlanRequest, free: int) -> bool:
    try:
        return next(rungs(snapshot, request, free), None) is not None
    except UsageError:  # not of this model, or not in this format
        return False


def short_beside_gpu(snapshot: Snapshot, row: WeightFormat, needs: Footprint, free: int) -> DoesNotFit:
    """DoesNotFit for a model that neither the GPU's memory nor the computer's holds."""
    most, smallest = size_words(needs.layers * needs.layer), auto_formats("cuda", packed=False)[-1]
    narrower = "" if row.bytes_per_weight <= smallest.bytes_per_weight else f"--quant {smallest}, or "
    return DoesNotFit(
        f"Not enough main memory for the layers of {snapshot.name} in {row} (up to {most}, {size_words(free)} free).",
        hint=f"Try {narrower}--device cpu --quant {auto_formats('cpu', packed=True)[-1]}.",
    )


def elsewhere(on_gpu: bool) -> str:
    return f"--device cpu, {SMALLER_MODEL}" if on_gpu else SMALLER_MODEL


def ways_out(plan: Plan, *, generic: bool) -> str:
    """The hint where a plan turned out not to fit. `generic`: transformers runs the model."""
    ways = [smaller(plan.weight_format, generic=generic)]
    if plan.resident is None and not generic and plan.weight_format.can_offload:
        ways.append("--device offload")
    if plan.device == "cuda":
        ways.append("--device cpu")
    return f"Try {', '.join(ways)} or {less(plan.parallel)}."


def less(parallel: int) -> str:
    """What takes less memory for contexts, of which there are `parallel`."""
    return "a smaller --ctx" if parallel == 1 else "a smaller --ctx or --parallel"


def smaller(row: WeightFormat, *, generic: bool = False) -> str:
    """What to try instead of a format. `generic`: transformers runs the model."""
    narrower = find_format(row.smaller, row.device) if row.smaller else None
    if narrower is None or (generic and row.is_float and not narrower.is_float):
        return SMALLER_MODEL
    return f"--quant {narrower}"


def fit_word(snapshot: Snapshot, free: int) -> str:
    """Whether a model fits into so many bytes, and how well, as "auto" would load it on the CPU."""
    context = choose_context(snapshot.name, read_any(snapshot.config).max_context, None)
    request = PlanRequest(WeightOptions(ctx=context))
    plan = next(rungs(snapshot, request, free), None)
    if plan is None:
        return "too large"
    if plan.resident is not None:
        return "from disk"
    return "fits" if plan.weight_format == choices(snapshot, request)[0] else f"fits in {plan.weight_format}"
