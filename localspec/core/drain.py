"""Generators that tell of their progress and return a value: run to the end, or passed on otherwise told. Knows nothing
about what they make."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Generic, TypeVar

Told = TypeVar("Told")
Passed = TypeVar("Passed")
Value = TypeVar("Value")


class Run(Generic[Told, Value]):
    """What a generator yields, and at the end of it the `value` that it returns."""

    def __init__(self, steps: Generator[Told, None, Value]) -> None:
        self.steps = steps

    def __iter__(self) -> Iterator[Told]:
        self.value = yield from self.steps


def drain(steps: Generator[Told, None, Value], tell: Callable[[Told], object] = lambda _: None) -> Value:
    """What the generator returns; what it yields goes to `tell`."""
    run = Run(steps)
    for told in run:
        tell(told)
    return run.value


def relay(
    steps: Generator[Told, None, Value], change: Callable[[Told], Passed | None]
) -> Generator[Passed, None, Value]:
    """Returns what the generator returns; yields what `change` makes of what it yields, unless that is None."""
    run = Run(steps)
    for told in run:
        if (passed := change(told)) is not None:
            yield passed
    return run.value
