"""A generator that tells of its progress and returns a value, run to its end. Knows nothing about what it makes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

Told = TypeVar("Told")
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
