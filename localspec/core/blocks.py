"""Small charts of block characters: columns, bars, meters. Knows no widget and no figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

HEIGHTS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉"

T = TypeVar("T")


def column(share: float) -> str:
    """A share as a height in one cell. The lowest is exactly 0, the highest exactly 1."""
    last = len(HEIGHTS) - 1
    if 0 < share < 1:
        return HEIGHTS[min(max(round(share * last), 1), last - 1)]
    return HEIGHTS[0 if share <= 0 else last]


def bar(share: float, width: int) -> str:
    """A share as a bar, to an eighth of a cell; always `width` cells."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return (HEIGHTS[-1] * full + (EIGHTHS[rest] if rest else "")).ljust(width)


def meter(share: float, width: int) -> str:
    """A share as a bar with its remainder shaded; always `width` cells."""
    full = round(min(max(share, 0.0), 1.0) * width)
    return HEIGHTS[-1] * full + "░" * (width - full)


def per_cell(count: int, width: int) -> int:
    """The number of things, of `count`, that share a cell so that all fit into `width`; at least one."""
    return max(1, -(-count // max(width, 1)))


def grouped(things: Sequence[T], size: int) -> list[Sequence[T]]:
    return [things[start : start + size] for start in range(0, len(things), size)]
