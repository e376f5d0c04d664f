"""A decoder that is loaded: how many threads are fastest for it here, what it holds, and how fast memory is beside it.

Knows nothing about files, plans or text.
"""

from __future__ import annotations

from time import perf_counter

import psutil
import torch

from localspec import processor
from localspec.engine.bandwidth import read_bandwidth
from localspec.engine.contract import Resident
from localspec.engine.memory import is_out_of_memory
from localspec.events import Memory
from localspec.main_memory import available_bytes

SHARE = 4  # of what is free, at most that much is taken to measure with
UNCACHED = 64 << 20  # bytes; less might be read from a cache


def choose_threads(target: Resident, asked: int | None, *, every: bool = False) -> int:
    """The count of threads with the fastest single row; a small model may want fewer than there are cores. `every`:
    all cores, unasked; layers that come and go take their time whoever computes."""
    most = min(processor.physical_cores(), processor.usable_threads())
    asked = asked or (most if every else None)
    counts = [asked] if asked else sorted({1, *(n for n in (2, 4, 8, 16, 32, 64) if n < most), most})
    best = counts[0] if len(counts) == 1 else min(counts, key=lambda n: row_seconds(target, n))
    set_threads(target, best)
    return best


def set_threads(decoder: Resident, threads: int) -> None:
    """torch's threads, or the CPU engine's own: then torch stays out of their way."""
    torch.set_num_threads(1)
    decoder.set_threads(threads)


def row_seconds(target: Resident, threads: int) -> float:
    """Fastest of five single-row forwards; the cache is left as it was."""
    set_threads(target, threads)
    times = []
    for _ in range(5):
        started = perf_counter()
        target.forward(torch.zeros(1, dtype=torch.long))
        times.append(perf_counter() - started)
        target.crop(0)
    return min(times)


def measure_memory(threads: int, target: Resident, *drafters: Resident) -> Memory:
    """Bandwidth is what the target's threads read at best."""
    weights, before = target.weights.num_bytes, torch.get_num_threads()
    torch.set_num_threads(threads)
    bandwidth = bandwidth_beside(weights, str(target.device))
    torch.set_num_threads(before)
    return Memory(
        target_bytes=weights,
        drafter_bytes=sum(drafter.weights.num_bytes for drafter in drafters),
        kv_bytes=sum(decoder.cache.num_bytes for decoder in (target, *drafters)),
        bandwidth_peak_gbs=bandwidth,
        device_bytes=all_memory(target.device) if {one.device for one in drafters} <= {target.device} else 0,
    )


def bandwidth_beside(num_bytes: int, device: str) -> float | None:
    """None where the model leaves too little memory to measure with: the system would end this process for it."""
    if device == "cpu":
        room = available_bytes() // SHARE
        if room < min(num_bytes, UNCACHED):
            return None
        num_bytes = min(num_bytes, room)
    try:
        return read_bandwidth(num_bytes, device)
    except (RuntimeError, MemoryError) as fault:
        if not is_out_of_memory(fault):
            raise
        return None


def all_memory(device: torch.device) -> int:
    """Used or not, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(psutil.virtual_memory().total)
