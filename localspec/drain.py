"""Generators that tell of their progress and return a value: run to the end, or passed on. Knows nothing about what
they make."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

Told = TypeVar("Told")
Passed = TypeVar("Passed")
Value = TypeVar("Value")


def drain(steps: Generator[Told, None, Value], tell: Callable[[Told], object] = lambda _: None) -> Value:
    """What the generator returns; what it yields goes to `tell`."""
    while True:
        try:
            told = next(steps)
        except StopIteration as stop:
            value: Value = stop.value
            return value
        tell(told)


def relay(
    steps: Generator[Told, None, Value], change: Callable[[Told], Passed | None]
) -> Generator[Passed, None, Value]:
    """Returns what the generator returns; yields what `change` makes of what it yields, unless that is None."""
    while True:
        try:
            told = next(steps)
        except StopIteration as stop:
            value: Value = stop.value
            return value
        if (passed := change(told)) is not None:
            yield passed
