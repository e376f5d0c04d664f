"""The device that computes, by the name that was asked for, and what CUDA says in one sentence.

Knows no models. Which GPU "cuda" means is torch's own setting, of a thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from localspec.core import nvidia
from localspec.core.errors import DoesNotFit, EngineError, UsageError, first_line
from localspec.engine.memory import is_out_of_memory

SEE = "See who has it: nvidia-smi. Or use --device cpu."


def pick_device(asked: str, quant: str = "auto") -> str:
    """ "cpu" or "cuda"; behind cuda:1 the second GPU is what "cuda" means. int4 is the CPU engine's alone."""
    kind, _, index = asked.partition(":")
    if quant == "int4":
        if kind == "cuda":
            raise UsageError(f"{quant} weights run on a CPU only.", hint="Use --device cpu, or --quant nf4.")
        return "cpu" if asked == "auto" else asked
    if asked == "auto":
        return "cuda" if has_gpu() else "cpu"
    if kind != "cuda":
        return asked
    if not has_gpu():
        raise without_gpu(asked)
    if index:
        choose(index)
    return kind


def has_gpu() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an old driver: `unused` says so
        return torch.cuda.is_available()


def choose(index: str) -> None:
    count = torch.cuda.device_count()
    if not (index.isascii() and index.isdecimal() and int(index) < count):
        numbers = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise UsageError(f"There is no device 'cuda:{index[:20]}' here.", hint=f"Use --device {numbers}.")
    with gpu_faults():
        torch.cuda.set_device(int(index))


def without_gpu(asked: str) -> UsageError:
    """Why there is none, where the driver knows one."""
    reason = nvidia.why_unused(nvidia.look(), torch.version.cuda)
    if reason is None:
        return UsageError(f"There is no CUDA device for --device {asked[:20]}.", hint="Use --device cpu.")
    return UsageError(reason.message, hint=f"Use --device cpu. {reason.hint}")


def unused() -> nvidia.Reason | None:
    """Why a GPU that is there is not used, where nobody has hidden it on purpose."""
    if has_gpu():
        return None
    there = nvidia.look()
    return None if there is None or there.visible is not None else nvidia.why_unused(there, torch.version.cuda)


def gpu_bytes() -> int:
    """Free on the GPU, or held there by torch for what comes next."""
    with gpu_faults():
        free, _ = torch.cuda.mem_get_info()
        return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())


def spare_gpu_bytes() -> int | None:
    """The same, for what need not be there; None where there is no GPU that can be used."""
    try:
        return gpu_bytes() if has_gpu() else None
    except (EngineError, DoesNotFit):
        return None


def is_lost(fault: Exception) -> bool:
    """After this one nothing runs on that GPU any more in this process, as after an assert in a kernel. Memory that ran
    out is asked after first."""
    return isinstance(fault, torch.AcceleratorError) or "CUDA error" in str(fault)


@contextmanager
def gpu_faults() -> Iterator[None]:
    """What CUDA says in here becomes one of ours."""
    try:
        yield
    except RuntimeError as fault:
        said = first_line(fault)
        if "CUDA" not in said:
            raise
        if is_out_of_memory(fault):
            hint = f"Try --quant nf4, --device offload or a smaller --ctx. {SEE}"
            raise DoesNotFit("The memory of the GPU ran out.", hint=hint) from fault
        raise EngineError(f"The GPU cannot be used ({said[:200]}).", hint=SEE) from fault
