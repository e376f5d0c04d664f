"""Runs generators that yield progress and return a value, or changes their progress on its way."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Generic, TypeVar

Progress = TypeVar("Progress")
Passed = TypeVar("Passed")
Value = TypeVar("Value")


class Drained(Generic[Progress, Value]):
    """Iterates over a generator; afterwards `value` is what it returned."""

    def __init__(self, steps: Generator[Progress, None, Value]) -> None:
        self.steps = steps

    def __iter__(self) -> Iterator[Progress]:
        self.value = yield from self.steps


def drain(steps: Generator[Progress, None, Value], report: Callable[[Progress], object] = lambda _: None) -> Value:
    """Runs the generator and returns its value; what it yields goes to `report`."""
    run = Drained(steps)
    for progress in run:
        report(progress)
    return run.value


def relay(
    steps: Generator[Progress, None, Value], change: Callable[[Progress], Passed | None]
) -> Generator[Passed, None, Value]:
    """Returns what the generator returns; yields what `change` makes of what it yields, unless that is None."""
    run = Drained(steps)
    for progress in run:
        if (passed := change(progress)) is not None:
            yield passed
    return run.value
