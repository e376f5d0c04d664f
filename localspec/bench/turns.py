"""The order in which those that are compared take their turns. Knows nothing about what they do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def rotated(things: Sequence[T], by: int) -> list[T]:
    """Rotates the order, so that a slow moment of the machine hits all alike."""
    first = by % len(things)
    return [*things[first:], *things[:first]]
