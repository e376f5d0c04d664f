"""The order in which those that are compared take their turns. Knows nothing about what they do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def rotated(things: Sequence[T], by: int) -> list[T]:
    """Who comes first turns, so that a slow moment hits all."""
    first = by % len(things)
    return [*things[first:], *things[:first]]
