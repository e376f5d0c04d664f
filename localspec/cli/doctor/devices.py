"""The GPUs that torch can use, with their memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from localspec.cli.doctor.records import Device, Torch
from localspec.cli.doctor.words import sentence_of


def look() -> Torch:
    try:
        import torch
    except Exception as fault:  # a broken installation may raise anything
        return Torch(fault=sentence_of(fault))
    return Torch(torch.version.cuda, torch.version.hip, tuple(devices()))


def devices() -> Iterator[Device]:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a missing or old driver: reported by `driver_findings`
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    yield from map(cuda, range(count))
    if torch.backends.mps.is_available():
        yield mps()


def cuda(index: int) -> Device:
    import torch

    name = f"cuda:{index}"
    try:
        card = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
    except (RuntimeError, AssertionError) as fault:  # AssertionError: torch's own, for a GPU that went away
        return Device(name, "GPU", fault=sentence_of(fault))
    return Device(name, card.name, total, free, f"{card.major}.{card.minor}")


def mps() -> Device:
    import torch

    total = torch.mps.recommended_max_memory()
    return Device("mps", "Apple GPU", total, total - torch.mps.driver_allocated_memory())
