"""Chooses the device that computes, and turns CUDA's errors into one sentence.

Knows no models. Which GPU "cuda" means is torch's own setting, of a thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from localspec.core import nvidia
from localspec.core.errors import DoesNotFit, EngineError, UsageError, first_line
from localspec.core.weight_formats import AUTO, SMALLEST_ANYWHERE, Device, is_on
from localspec.engine.memory import is_out_of_memory
from localspec.loading.plan_request import check_device

SEE = "See which program uses it: nvidia-smi. Or use --device cpu."


def pick_device(asked: str, weight_format: str = AUTO) -> Device:
    """The class of device; after cuda:1 the second GPU is what "cuda" means. Some formats are on a CPU only."""
    check_device(asked)
    kind, _, index = asked.partition(":")
    if is_on(weight_format, "cpu") and not is_on(weight_format, "cuda"):
        if kind == "cuda":
            hint = f"Use --device cpu, or --quant {SMALLEST_ANYWHERE}."
            raise UsageError(f"{weight_format} weights run on a CPU only.", hint=hint)
        return "cpu"
    if kind == "cpu" or (kind == "auto" and not has_gpu()):
        return "cpu"
    if not has_gpu():
        raise without_gpu(asked)
    if index:
        choose(index)
    return "cuda"


def has_gpu() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an old driver: `unused` reports it
        return torch.cuda.is_available()


def choose(index: str) -> None:
    count = torch.cuda.device_count()
    if not (index.isascii() and index.isdecimal() and int(index) < count):
        numbers = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise UsageError(f"There is no device 'cuda:{index[:20]}' here.", hint=f"Use --device {numbers}.")
    with gpu_faults():
        torch.cuda.set_device(int(index))


def without_gpu(asked: str) -> UsageError:
    """UsageError with the reason that there is no GPU, where the driver knows one."""
    reason = nvidia.why_unused(nvidia.look(), torch.version.cuda)
    if reason is None:
        return UsageError(f"There is no CUDA device for --device {asked[:20]}.", hint="Use --device cpu.")
    return UsageError(reason.message, hint=f"Use --device cpu. {reason.hint}")


def unused() -> nvidia.Reason | None:
    """Why a GPU that is present is not used, unless it is hidden on purpose."""
    if has_gpu():
        return None
    there = nvidia.look()
    return None if there is None or there.visible is not None else nvidia.why_unused(there, torch.version.cuda)


def gpu_bytes() -> int:
    """Bytes free on the GPU, those that torch has reserved included."""
    with gpu_faults():
        free, _ = torch.cuda.mem_get_info()
        return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())


def spare_gpu_bytes() -> int | None:
    """Bytes free on the GPU; None where no GPU can be used."""
    try:
        return gpu_bytes() if has_gpu() else None
    except (EngineError, DoesNotFit):
        return None


def is_lost(fault: Exception) -> bool:
    """Whether nothing runs on that GPU any more in this process, as after an assert in a kernel. Ask for out-of-memory
    first."""
    return isinstance(fault, torch.AcceleratorError) or "CUDA error" in str(fault)


@contextmanager
def gpu_faults() -> Iterator[None]:
    """Turns CUDA's errors into EngineError or DoesNotFit."""
    try:
        yield
    except RuntimeError as fault:
        reason = first_line(fault)
        if "CUDA" not in reason:
            raise
        if is_out_of_memory(fault):
            hint = f"Try --quant {SMALLEST_ANYWHERE}, --device offload or a smaller --ctx. {SEE}"
            raise DoesNotFit("The memory of the GPU ran out.", hint=hint) from fault
        raise EngineError(f"The GPU cannot be used ({reason[:200]}).", hint=SEE) from fault
