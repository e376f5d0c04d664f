"""How much of a prompt a step reads beside others that write, by what steps were measured to take.

Counts rows. Knows no passes and no clock.
"""

from __future__ import annotations

from collections import defaultdict, deque
from statistics import median
from typing import Final

STEP_SECONDS: Final = 0.07  # of a step in which prompts are read while others write
LONG_SECONDS: Final = 0.1  # of one that is long anyway: there prompts are read in pieces that are worth their step
LEAST_READ: Final = 16  # rows of prompts where too little is measured; a drafter that reads fewer drafts
LATEST: Final = 2.25  # times as late as alone: a prompt beside others that draft nothing, where these take long
RECENT: Final = 5  # forwards: fewer, or one that was held up, say nothing


class PromptPieces:
    """What was measured of one model's forwards. One with some that write takes as long as reading so many rows: those
    of prompts, the drafted ones, and what one row for each writer is `worth`. Where the machine becomes slower or
    faster, the `rate` follows alone."""

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=RECENT)  # rows per second
        self._worth: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))  # by writers

    @property
    def rate(self) -> float:
        return median(self._rates) if self._rates else 0.0

    def most(self, writers: int, drafted: int) -> int:
        """Rows of prompts beside writers that have drafted so many: as many as STEP_SECONDS leave, but no fewer than
        LATEST allows, and where that takes long all the same than LEAST_READ."""
        if len(self._worth[writers]) < RECENT:
            return LEAST_READ
        worth = median(self._worth[writers])
        rows = max(int(self.rate * STEP_SECONDS - worth - drafted), int(worth / (LATEST - 1)), 1)
        return rows if worth + drafted + rows <= self.rate * LONG_SECONDS else max(rows, LEAST_READ)

    def behind(self, seconds: float) -> int:
        """Rows of prompts in a step whose other forward takes so long."""
        return max(LEAST_READ, int(self.rate * (STEP_SECONDS - seconds)))

    def observe(self, seconds: float, *, read: int, writers: int = 0, drafted: int = 0) -> None:
        """Takes a forward that read so many rows of prompts, and had one row and the drafted ones of each writer."""
        worth = self._worth[writers]
        if read and len(worth) == RECENT:
            self._rates.append((median(worth) + drafted + read) / seconds)
        elif read >= LEAST_READ and not (writers and self._rates):
            self._rates.append((writers + drafted + read) / seconds)
        elif writers and self._rates:
            worth.append(max(self.rate * seconds - drafted - read, writers))
