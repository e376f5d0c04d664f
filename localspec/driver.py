"""NVIDIA's driver, asked without torch: it also knows GPUs that torch cannot use."""

from __future__ import annotations

import os
from contextlib import suppress

from localspec.doctor.records import Driver


def look() -> Driver | None:
    """None where there is no driver, or nothing to ask it with."""
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


def text(said: str | bytes) -> str:
    """Older versions of the package say bytes."""
    return said.decode(errors="replace") if isinstance(said, bytes) else said
