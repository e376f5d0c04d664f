"""A decoder that is loaded: how many threads are fastest for it here, what it holds, and how fast memory is beside it.

Knows nothing about files, plans or text.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter

import psutil
import torch

from localspec.core import processor
from localspec.core.events import Memory
from localspec.core.main_memory import CACHED_BYTES, available_bytes
from localspec.engine.bandwidth import read_bandwidth
from localspec.engine.memory import is_out_of_memory
from localspec.engine.protocols import Resident
from localspec.engine.shortlist import drafter_bytes

SHARE = 4  # of what is free, at most that much is taken to measure with
TURNS = 3
ROWS = 2  # in a turn, at least
TURN_SECONDS = 0.01
WORTH = 1.1  # a thread more, of a row's time


def choose_threads(target: Resident, asked: int | None, *, every: bool = False, width: int = 1) -> int:
    """Chooses the number of threads with the fastest rows; a small model may need fewer than there are cores, and on
    a machine that has other work a thread that has to wait delays all others. `every`: all cores, without measuring;
    the speed of offloaded layers does not depend on it. `width`: how many rows a forward usually has."""
    asked = asked or (possible()[-1] if every else None)
    counts = [asked] if asked else possible()
    best = counts[0] if len(counts) == 1 else fewest(row_seconds(target, counts, width))
    set_threads(target, best)
    return best


def possible() -> list[int]:
    """Counts of threads worth trying, rising."""
    most = min(processor.physical_cores(), processor.usable_threads())
    return sorted({1, *(n for n in (2, 4, 8, 16, 32, 64) if n < most), most})


def fewest(seconds: dict[int, float]) -> int:
    """The count of threads that no larger one beats by much."""
    best = min(seconds)
    for count in sorted(seconds):
        if WORTH * seconds[count] < seconds[best]:
            best = count
    return best


def set_threads(decoder: Resident, threads: int) -> None:
    """torch's threads, or the CPU engine's own: then torch stays out of their way."""
    torch.set_num_threads(1)
    decoder.set_threads(threads)


def row_seconds(target: Resident, counts: Sequence[int], width: int = 1) -> dict[int, float]:
    """Seconds of a forward with so many threads: the median of several turns, since the machine's other work varies,
    each a mean over a while, where a stall has its weight. The cache is left as it was."""
    turns = [{count: mean_row(target, count, width=width) for count in counts} for _ in range(TURNS)]
    return {count: median(turn[count] for turn in turns) for count in counts}


def mean_row(target: Resident, threads: int, *, least: int = ROWS, width: int = 1) -> float:
    set_threads(target, threads)
    started, rows = perf_counter(), 0
    length = target.length
    while rows < least or perf_counter() - started < TURN_SECONDS:
        target.forward(torch.zeros(width, dtype=torch.long))
        target.crop(length)
        rows += 1
    return (perf_counter() - started) / rows


def measure_memory(threads: int, target: Resident, *drafters: Resident) -> Memory:
    """Bandwidth is what the target's threads read at best."""
    weights, before = target.weights.num_bytes, torch.get_num_threads()
    torch.set_num_threads(threads)
    bandwidth = bandwidth_beside(weights, str(target.device))
    torch.set_num_threads(before)
    return Memory(
        target_bytes=weights,
        drafter_bytes=drafter_bytes(target, *drafters),
        kv_bytes=sum(decoder.cache.num_bytes for decoder in (target, *drafters)),
        bandwidth_peak_gbs=bandwidth,
        device_bytes=all_memory(target.device) if {one.device for one in drafters} <= {target.device} else 0,
    )


def bandwidth_beside(num_bytes: int, device: str) -> float | None:
    """Bandwidth with these decoders loaded; None where memory is too short: the system would kill this process."""
    if device == "cpu":
        num_free = available_bytes() // SHARE
        if num_free < min(num_bytes, CACHED_BYTES):
            return None
        num_bytes = min(num_bytes, num_free)
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
