"""Turns byte counts into Loading events with an ETA. Knows nothing about what is done with them."""

from __future__ import annotations

from collections.abc import Generator
from time import perf_counter
from typing import TypeVar

from localspec.core.drain import relay
from localspec.core.events import Loading

Value = TypeVar("Value")


def progress(stage: str, total: int, steps: Generator[int, None, Value]) -> Generator[Loading, None, Value]:
    """Loading events of `total` bytes from steps that yield how many more are done. Returns what the steps return."""
    started, done = perf_counter(), 0

    def event(more: int) -> Loading:
        nonlocal done
        done += more
        left = (perf_counter() - started) / max(done, 1) * max(total - done, 0)
        return Loading(stage, done, total, "bytes", left)

    return (yield from relay(steps, event))
