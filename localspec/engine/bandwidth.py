"""Measures memory bandwidth, the ceiling of plain decoding, which reads every weight once a token."""

from __future__ import annotations

from time import perf_counter

import torch

from localspec.engine.cpu.pages import in_large_pages

MOST_BYTES = 256 << 20  # past any cache, and read in tens of milliseconds
REPEATS = 5


def read_bandwidth(num_bytes: int, device: str) -> float:
    """The best GB/s over a buffer as large as the weights, so that a model in the CPU's cache is judged so."""
    buffer = torch.empty(max(min(num_bytes, MOST_BYTES) // 4, 1), device=device)
    if device == "cpu":
        in_large_pages(buffer)
    buffer.fill_(1)
    times = []
    for _ in range(REPEATS):
        started = perf_counter()
        float(buffer.sum())  # waits for the device
        times.append(perf_counter() - started)
    return buffer.nbytes / min(times) / 1e9
