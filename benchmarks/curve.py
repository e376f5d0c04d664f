"""llama.cpp's curve of divergence over bits per weight, and where a point lies beside it. Knows no models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Point:
    bits: float
    kl: float


def curve_at(points: Sequence[Point], bits: float) -> float:
    """Straight lines in log KL between neighbours by bits; beyond the ends the outermost line goes on."""
    ordered = frontier(points)
    if len(ordered) == 1:
        return ordered[0].kl
    pairs = list(pairwise(ordered))
    low, high = next((pair for pair in pairs if bits <= pair[1].bits), pairs[-1])
    share = (bits - low.bits) / (high.bits - low.bits)
    return math.exp((1 - share) * math.log(low.kl) + share * math.log(high.kl))


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points by bits, without those that another point beats in both."""
    best: list[Point] = []
    for point in sorted(points, key=lambda one: (one.bits, one.kl)):
        if not best or point.kl < best[-1].kl:
            best.append(point)
    return best


def standing(points: Sequence[Point], point: Point) -> str:
    """The words for how far below or above the curve."""
    ratio = point.kl / curve_at(points, point.bits)
    side = "below" if ratio < 1 else "above"
    ends = [one.bits for one in frontier(points)]
    beyond = "" if ends[0] <= point.bits <= ends[-1] else f", whose formats take {ends[0]:.2f} to {ends[-1]:.2f} bits"
    return f"{abs(1 - ratio):.0%} {side} llama.cpp's curve at {point.bits:.2f} bits{beyond}"
