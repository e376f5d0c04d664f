"""The memory in which the compiled search leaves what it found: int64 words, by their offset in bytes.

In: WANTED, how many tokens to propose. Out: LENGTH of the longest match, where it ends (AT), how many tokens follow
(FOUND), the TOKENS, and for each of them the VOTES: how many of the newest occurrences went on like this up to there.
Occurrences are those of the last two tokens (PAIRS), or of the last one (SINGLES) where no two match; their number
comes first, then where they end.
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = 32  # tokens that are compared: a longer match says no more
SEEN: Final = 4  # occurrences that vote
MOST: Final = 64  # tokens of one proposal

WANTED: Final = 0
LENGTH: Final = 8
AT: Final = 16
FOUND: Final = 24
SINGLES: Final = 32
PAIRS: Final = SINGLES + 8 * (1 + SEEN)
TOKENS: Final = PAIRS + 8 * (1 + SEEN)
VOTES: Final = TOKENS + 8 * MOST
BYTES: Final = VOTES + 8 * MOST
