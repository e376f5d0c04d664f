"""Draft lengths of several requests whose drafts cost forwards: chosen for all at once, since all wait for each other.

Alone, no request would begin a draft that pays only when others share its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple


class Agreed(NamedTuple):
    """Each request drafts those of its next `longest` tokens that bring `least` or more; all together `rows`, and gain
    `tokens` in `seconds`."""

    longest: int
    least: float
    rows: int
    tokens: float
    seconds: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    def length(self, rises: Sequence[float]) -> int:
        return sum([rise >= self.least for rise in rises[: self.longest]])


def agree(
    everyone: Sequence[Sequence[float]],
    widths: Sequence[float],
    drafts: Sequence[float],
    *,
    tokens: float,
    most: float,
) -> Agreed:
    """Who drafts how much for the most tokens per second. `everyone`: what each further token of a draft brings to
    each; `widths`: seconds of a forward, by its rows beyond those without drafts, which bring `tokens`; `drafts`: of a
    draft, by its length; `most`: of a step."""
    best = Agreed(0, 0.0, 0, tokens, widths[0])
    for longest in range(1, len(drafts)):
        rises = sorted([rise for one in everyone for rise in one[:longest]], reverse=True)
        totals = accumulate(rises, initial=tokens)
        for rows, (total, width) in enumerate(zip(totals, widths, strict=False)):
            seconds = width + drafts[longest]
            if rows and seconds <= most and total * best.seconds > best.tokens * seconds:
                best = Agreed(longest, rises[rows - 1], rows, total, seconds)
    return best
