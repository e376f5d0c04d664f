"""What a model takes on this machine in each weight format, part by part, from its headers alone.

Knows nothing about torch, the network or where the files come from.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from typing import Literal

from localspec.core import nvidia
from localspec.core.errors import UsageError
from localspec.core.events import Record
from localspec.core.main_memory import available_bytes
from localspec.core.requests import WeightOptions
from localspec.core.weight_formats import AUTO, LISTED, Device, WeightFormat, auto_formats, find_format, is_on
from localspec.engine.generic_arch import GenericArch, read_any
from localspec.loading.plan import (
    Plan,
    bytes_free,
    drafter_footprint,
    needed,
    rungs,
    short_of_main_memory,
)
from localspec.loading.plan_request import (
    PlanRequest,
    check,
    check_generic,
    check_memory,
    choices,
    choose_context,
    offloadable,
)
from localspec.models.checkpoint import Snapshot

FitWord = Literal["fits", "from disk", "too large"]
TOO_LARGE: Literal["too large"] = "too large"
ROUGH_BESIDE = 1.15  # KV store and workspace beside the weights, as a factor; a guess, so its word is approximate


class FormatFit(Record, frozen=True):
    """The memory that a weight format takes, by part, and whether it fits."""

    quant: str
    word: FitWord
    target_bytes: int
    drafter_bytes: int
    kv_bytes: int
    work_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.target_bytes + self.drafter_bytes + self.kv_bytes + self.work_bytes


class FitReport(Record, frozen=True):
    """What a model takes on this machine in each format, best first. `chosen`: the format that `auto` would load, or
    the one asked for; "" where none fits. `word`: as the list of models shows it. `num_bytes`: of its weights, as they
    are stored. `approximate`: only the number of parameters is known."""

    name: str
    device: str
    context: int
    free_bytes: int
    formats: tuple[FormatFit, ...]
    chosen: str
    word: str
    drafter: str = ""
    approximate: bool = False
    num_bytes: int = 0


def fit_report(snapshot: Snapshot, request: PlanRequest, *, held_bytes: int = 0) -> FitReport:
    """A model's memory in each format of the device that is asked for. `held_bytes` would be freed first; UsageError
    for options that the model cannot have."""
    check(request.options)
    arch = read_any(snapshot.config)
    choices(snapshot, request)
    if isinstance(arch, GenericArch):
        check_generic(arch, request)
    request = request.asking(ctx=choose_context(snapshot.name, arch.max_context, request.options.ctx))
    free = available_bytes() + held_bytes
    plan = next(rungs(snapshot, request, free), None)
    limit = bytes_free(request, free)
    return FitReport(
        name=snapshot.name,
        device=request.device,
        context=request.options.ctx or 0,
        free_bytes=free if limit is None else limit,
        formats=tuple(format_fit(snapshot, request, row, free) for row in rows(snapshot, request)),
        chosen=plan.weight_format.name if plan else "",
        word=word_of(snapshot, request, plan),
        drafter=request.drafter.name if request.drafter else "",
        num_bytes=snapshot.total_bytes,
    )


def rows(snapshot: Snapshot, request: PlanRequest) -> list[WeightFormat]:
    """The formats to show: those that "auto" tries on this device, best first, and all others that --quant takes."""
    best = choices(snapshot, request.asking(weight_format=AUTO))
    more = (row for packed in (True, False) for row in auto_formats(request.device, packed=packed))
    others = (find_format(name, request.device) for name in LISTED if is_on(name, request.device))
    shown = (row for row in (*best, *more, *choices(snapshot, request), *others) if can_have(snapshot, request, row))
    return list(dict.fromkeys(shown))


def can_have(snapshot: Snapshot, request: PlanRequest, row: WeightFormat) -> bool:
    """Whether the model can be loaded in this format, memory aside."""
    asking = request.asking(weight_format=AUTO if row.is_read_only else row.name)
    arch = read_any(snapshot.config)
    try:
        if isinstance(arch, GenericArch):
            check_generic(arch, asking)
        return row in choices(snapshot, asking) and not (row.is_packed and request.options.keep_head)
    except UsageError:
        return False


def format_fit(snapshot: Snapshot, request: PlanRequest, row: WeightFormat, free: int) -> FormatFit:
    """One format's memory, part by part: the parts add up to what loading plans with."""
    own, drafter = needed(snapshot, replace(request, drafter=None), row), drafter_footprint(request, row)
    both = [own, drafter] if drafter else [own]
    return FormatFit(
        quant=row.name,
        word=format_word(snapshot, request, row, free),
        target_bytes=own.tables + own.layers * own.layer,
        drafter_bytes=drafter.tables + drafter.layers * drafter.layer if drafter else 0,
        kv_bytes=sum(one.kv for one in both),
        work_bytes=max(one.workspace for one in both) + sum(one.graphs for one in both),
    )


def format_word(snapshot: Snapshot, request: PlanRequest, row: WeightFormat, free: int) -> FitWord:
    """Whether the model fits in this format: whole, with offloaded layers, or not."""
    limit, needs = bytes_free(request, free), needed(snapshot, request, row)
    if not request.offloads_most and (limit is None or needs.whole <= limit):
        return "fits"
    asking = request.asking(weight_format=AUTO if row.is_read_only else row.name, device="offload")
    try:
        if row not in offloadable(snapshot, asking):
            return TOO_LARGE
    except UsageError:
        return TOO_LARGE
    most = request.min_resident if limit is None else needs.resident(limit)
    resident = min(most, needs.layers - 1)
    fits = request.min_resident <= most and not short_of_main_memory(request, needs, resident, free)
    return "from disk" if fits else TOO_LARGE


def word_of(snapshot: Snapshot, request: PlanRequest, plan: Plan | None) -> str:
    if plan is None:
        return TOO_LARGE
    if plan.resident is not None:
        return "from disk"
    best = choices(snapshot, request)[0]
    return "fits" if plan.weight_format == best else f"fits in {plan.weight_format}"


def request_here(
    options: WeightOptions, *, drafter: Snapshot | None = None, min_resident: int = 1, gpu_bytes: int | None = None
) -> PlanRequest:
    """What loading with these options would ask of a plan on this machine. `gpu_bytes`: free on its GPU, if it has one
    that can be used. Reads no torch: `options.device` "cuda" without a GPU is planned for the CPU."""
    max_bytes = check_memory(options.max_memory)
    on_gpu = gpu_bytes is not None and options.device.partition(":")[0] in ("auto", "cuda", "offload")
    packed_only = is_on(options.weight_format, "cpu") and not is_on(options.weight_format, "cuda")
    device: Device = "cuda" if on_gpu and not packed_only else "cpu"
    spare = gpu_bytes if device == "cuda" or (drafter is not None and options.device != "cpu") else None
    return PlanRequest(options, device, max_bytes, max(min_resident, 1), drafter=drafter, gpu_bytes=spare)


def usable_gpu_bytes() -> int | None:
    """Bytes free on the GPU that torch would compute with; None without one. Imports no torch: a build for CPUs says so
    in its version."""
    try:
        if metadata.version("torch").endswith("+cpu"):
            return None
    except metadata.PackageNotFoundError:
        return None
    return nvidia.free_bytes()


def rough_fit(parameters: int, *, free: int, gpu_bytes: int | None = None) -> str:
    """The word for a model of which only the number of parameters is known: approximate, and never more than that."""
    device: Device = "cpu" if gpu_bytes is None else "cuda"
    limit = free if gpu_bytes is None else gpu_bytes
    formats = auto_formats(device, packed=device == "cpu")
    fitting = [row for row in formats if parameters * row.bytes_per_weight * ROUGH_BESIDE <= limit]
    if not fitting:
        return TOO_LARGE
    return "fits" if fitting[0] == formats[0] else f"fits in {fitting[0]}"
