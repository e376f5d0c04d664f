"""Queries NVIDIA's driver without torch: it also finds GPUs that torch cannot use, and says why."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from localspec.core.events import Record


class Driver(Record, frozen=True):
    """The driver. `cuda` is the newest CUDA it supports, `gpus` are all GPUs, `visible` is CUDA_VISIBLE_DEVICES."""

    version: str
    cuda: str
    gpus: tuple[str, ...]
    visible: str | None


class Reason(NamedTuple):
    """A message and the next command."""

    message: str
    hint: str


def look() -> Driver | None:
    """The driver; None where there is none, or pynvml is not installed."""
    try:
        import pynvml as nvml
    except ImportError:
        return None
    with suppress(nvml.NVMLError):
        nvml.nvmlInit()
        try:
            cuda = nvml.nvmlSystemGetCudaDriverVersion()
            handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
            return Driver(
                version=text(nvml.nvmlSystemGetDriverVersion()),
                cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
                gpus=tuple(text(nvml.nvmlDeviceGetName(handle)) for handle in handles),
                visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
            )
        finally:
            nvml.nvmlShutdown()
    return None


def free_bytes() -> int | None:
    """Bytes free on the first GPU; None where there is none, or CUDA_VISIBLE_DEVICES chooses among them."""
    try:
        import pynvml as nvml
    except ImportError:
        return None
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") != "0":
        return None
    with suppress(nvml.NVMLError):
        nvml.nvmlInit()
        try:
            return int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).free)
        finally:
            nvml.nvmlShutdown()
    return None


def why_unused(driver: Driver | None, build: str | None) -> Reason | None:
    """Why torch does not use a GPU that the driver has; None where there is none. `build`: the CUDA that torch is built
    with."""
    if driver is None or not driver.gpus:
        return None
    gpu = driver.gpus[0]
    if build is None:
        index = "cu130" if major(driver.cuda) >= 13 else "cu126"
        install = f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{index}"
        return Reason(f"There is a GPU ({gpu}), but this torch is built without CUDA.", f"Try: {install}")
    if major(driver.cuda) < major(build):
        message = f"The NVIDIA driver {driver.version} supports CUDA {driver.cuda}, too old for this torch ({build})."
        return Reason(message, "Update the driver, then check: nvidia-smi")
    if driver.visible is not None:
        message = f"CUDA_VISIBLE_DEVICES is '{driver.visible}', which hides the GPU ({gpu})."
        return Reason(message, "Try: env -u CUDA_VISIBLE_DEVICES localspec doctor")
    hint = 'See why: python -c "import torch; torch.cuda.init()"'
    return Reason(f"torch cannot use the GPU ({gpu}).", hint)


def major(version: str) -> int:
    """The major version; 0 for anything else."""
    first = version.partition(".")[0]
    return int(first) if first.isdecimal() else 0


def text(value: str | bytes) -> str:
    """The value as text: older versions of pynvml return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
