"""What a plan is asked for, what can be refused of it, and the weight formats to try for a model, best first.

Works from a snapshot's headers and config alone. Knows nothing about sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from localspec.core.errors import UsageError
from localspec.core.requests import LEAST_CONTEXT, MOST_PARALLEL, WeightOptions
from localspec.core.sizes import read_size
from localspec.core.weight_formats import (
    AUTO,
    FLOATS,
    INT8_THRESHOLD,
    LISTED,
    SMALLEST_ANYWHERE,
    Device,
    WeightFormat,
    auto_formats,
    auto_offload_formats,
    either,
    find_format,
    is_known,
    is_on,
)
from localspec.engine.generic_arch import GenericArch, is_generic, read_any
from localspec.models.checkpoint import Snapshot
from localspec.models.prequantised.stored_format import stored_format

USUAL_PARALLEL = 4  # answers at once, where their contexts fit; more are paid for at load
DEFAULT_CONTEXT = 8192  # tokens; a longer one is asked for, because its KV store is paid for at load


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Weight format, context and memory constraints of a plan, on the device that `options.device` means here.

    `max_bytes`: of memory. `min_resident`: the first layers, which a drafter runs over and over, are not offloaded.
    `allow_cpu_engine`: "auto" may choose the CPU engine's formats, which are faster than torch's. `gpu_bytes`: free on
    the GPU, if known. `drafter`: a model that takes its memory beside the target, or on a GPU that the target leaves
    free.
    """

    options: WeightOptions = field(default_factory=WeightOptions)
    device: Device = "cpu"
    max_bytes: int | None = None
    min_resident: int = 1
    allow_cpu_engine: bool = True
    drafter: Snapshot | None = None
    gpu_bytes: int | None = None

    @property
    def offloads_most(self) -> bool:
        """Offloading was asked for without a limit: as many layers as can be."""
        return self.options.offloads and self.max_bytes is None

    @property
    def parallels(self) -> tuple[int, ...]:
        """How many contexts to try, best first."""
        asked = self.options.parallel
        return (asked,) if isinstance(asked, int) else tuple(range(USUAL_PARALLEL, 0, -1))

    @property
    def least_parallel(self) -> int:
        """How many contexts there are at least."""
        return self.parallels[-1]

    @property
    def alone(self) -> PlanRequest:
        """The same without a drafter."""
        return replace(self, drafter=None, min_resident=1)

    def asking(self, **options: object) -> PlanRequest:
        """This request with other options."""
        return replace(self, options=msgspec.structs.replace(self.options, **options))


def check(options: WeightOptions) -> None:
    """UsageError for options that no model can have, whatever this machine is."""
    for flag, asked in (("--quant", options.weight_format), ("--draft-quant", options.draft_format)):
        if asked != AUTO and not is_known(asked):
            raise UsageError(
                f"There is no weight format '{asked[:40]}' in this version.",
                hint=f"Use {flag} {either(AUTO, *LISTED)}.",
            )
    check_device(options.device)
    check_memory(options.max_memory)
    check_context(options.ctx)
    check_parallel(options.parallel)
    if not 0 <= options.int8_threshold < float("inf"):
        raise UsageError(
            f"--int8-threshold {options.int8_threshold} is out of range.",
            hint=f"Use 0 or more; {INT8_THRESHOLD:g} is the default.",
        )


def check_device(asked: str) -> None:
    """UsageError for the name of no device."""
    kind, _, index = asked.partition(":")
    if kind not in ("auto", "cpu", "cuda", "offload") or (index and kind != "cuda"):
        raise UsageError(
            f"There is no device '{asked[:20]}': localspec runs on CPUs and CUDA GPUs.",
            hint="Use --device auto, cpu, cuda, cuda:1 or offload.",
        )


def check_memory(written: str | None) -> int | None:
    """--max-memory in bytes; None without it."""
    found = None if written is None else read_size(written)
    if written is not None and found is None:
        raise UsageError(f"'{written[:40]}' is not a memory size.", hint="Write e.g. --max-memory 8GB.")
    return found


def check_generic(arch: GenericArch, request: PlanRequest) -> None:
    """UsageError for what transformers' own models cannot be loaded in."""
    if request.options.offloads:
        raise UsageError(
            f"Models of type '{arch.family}' cannot be offloaded: transformers runs them whole.",
            hint="Leave out --device offload.",
        )
    asked = request.options.weight_format
    if asked == AUTO:
        return
    row = find_format(asked, request.device)
    if row.is_packed:
        raise UsageError(
            f"{row} on a CPU needs localspec's own engine, which does not run models of type '{arch.family}'.",
            hint=f"Use --quant {either(*FLOATS, SMALLEST_ANYWHERE)}.",
        )
    if not row.is_float and not arch.can_rewind:
        raise UsageError(f"Models of type '{arch.family}' run in floats only.", hint=f"Use --quant {either(*FLOATS)}.")


def choices(snapshot: Snapshot, request: PlanRequest) -> tuple[WeightFormat, ...]:
    """The formats to try with all layers resident, best first. A prequantised model has only its own."""
    asked = request.options.weight_format
    if stored := stored_format(snapshot.config):
        if asked not in (AUTO, stored):
            raise UsageError(
                f"{snapshot.name} is stored in {stored} and cannot be {asked}.", hint=f"Use --quant {AUTO}."
            )
        return (find_format(stored, request.device),)
    if asked != AUTO:
        return (format_on(asked, request.device),)
    found = auto_formats(request.device, packed=packs(snapshot, request))
    return found if read_any(snapshot.config).can_rewind else tuple(row for row in found if row.is_float)


def format_on(name: str, device: Device) -> WeightFormat:
    """The format on this device; UsageError where it is another device's."""
    if not is_on(name, device):
        where = "CPU" if device == "cuda" else "GPU"
        raise UsageError(f"{name} weights run on a {where} only.", hint=f"Use --quant {SMALLEST_ANYWHERE}.")
    return find_format(name, device)


def offloadable(snapshot: Snapshot, request: PlanRequest) -> tuple[WeightFormat, ...]:
    """The formats to try with offloaded layers: where that was asked for, or as the last fallback of "auto"."""
    options = request.options
    if is_generic(snapshot.config) or (not options.offloads and options.weight_format != AUTO):
        return ()
    stored = stored_format(snapshot.config)
    name = stored or options.weight_format
    if name == AUTO:
        return auto_offload_formats(request.device, packed=packs(snapshot, request), asked=options.offloads)
    row = find_format(name, request.device)
    if row.can_offload:
        return (row,)
    if options.offloads:
        others = auto_offload_formats(request.device, packed=packs(snapshot, request), asked=True)
        fix = "Leave out --device offload." if stored else f"Use --quant {either(*map(str, others))}."
        where = "a GPU from main memory" if request.device == "cuda" else "a CPU from disk"
        raise UsageError(f"Layers in {row} cannot be streamed to {where}.", hint=fix)
    return ()


def packs(snapshot: Snapshot, request: PlanRequest) -> bool:
    """Whether "auto" may choose what the CPU engine computes."""
    return request.allow_cpu_engine and request.device == "cpu" and not is_generic(snapshot.config)


def choose_context(name: str, longest: int, asked: int | None) -> int:
    """The context asked for, else the default as far as the model goes."""
    if asked is None:
        return min(longest, DEFAULT_CONTEXT)
    check_context(asked)
    if asked > longest:
        hint = f"Use --ctx {LEAST_CONTEXT} to {longest}."
        raise UsageError(f"--ctx {asked:,} is outside what {name} was made for.", hint=hint)
    return asked


def check_parallel(asked: int | Literal["auto"]) -> None:
    """UsageError for a count of answers at once that none can have."""
    if isinstance(asked, int) and not 1 <= asked <= MOST_PARALLEL:
        hint = f"Use --parallel 1 to {MOST_PARALLEL}, or {AUTO}."
        raise UsageError(f"--parallel {asked} is out of range.", hint=hint)


def check_context(asked: int | None) -> None:
    """UsageError for a context in which no question fits, whatever the model."""
    if asked is not None and asked < LEAST_CONTEXT:
        message = f"--ctx {asked:,} is too short: a question and its answer must fit."
        raise UsageError(message, hint=f"Use --ctx {LEAST_CONTEXT} or more.")
