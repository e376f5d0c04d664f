"""How many words a short draft head has, for the engine and for the memory plan. Knows no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LONGEST = 32768  # first ids; docs/measurements.md, "A draft head of fewer words"
SHORTEST = 16000  # half of a vocabulary below that covers too little, and saves too little
SLOTS = 1024  # of others; a multiple of 32, as packed heads have outputs


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many first ids a shortlist has, and how many slots for others."""

    first: int
    slots: int

    @property
    def total(self) -> int:
        return self.first + self.slots


Shorten = Callable[[int], Lengths | None]
"""From the number of words that can be drafted to the lengths of a shortlist; None where all are used."""


def usual(words: int) -> Lengths | None:
    """Half of the words, at most LONGEST; None where they are few."""
    first = min(words // 2, LONGEST) // 32 * 32
    return Lengths(first, SLOTS) if first >= SHORTEST else None


def never(words: int) -> None:
    """Keeps the head whole."""
