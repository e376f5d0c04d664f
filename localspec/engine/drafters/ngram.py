"""Finds the last tokens of a conversation in a text, and what followed them there: the longest match, the newest first.

The search is compiled, reads the whole text every time and remembers nothing. Knows ids; no session and no drafter.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.core.errors import EngineError
from localspec.engine.cpu import matches as at

LONGEST = at.LONGEST
GAP = -1  # between two texts: no id
WORDS = 8  # bytes


@dataclass(frozen=True, slots=True)
class Match:
    """The last `length` tokens stand in the text up to `end`, where `tokens` followed. `votes`: how many of the newest
    `voters` occurrences of the last one or two tokens went on like this, up to each token."""

    length: int
    end: int
    tokens: tuple[int, ...]
    votes: tuple[int, ...]
    voters: int


class NgramFinder:
    """Looks for matches. Has memory of its own for what is found, so it belongs to one thread."""

    def __init__(self) -> None:
        self._search = compiled()
        self._out = array("q", bytes(at.BYTES))
        self._address = self._out.buffer_info()[0]

    def __call__(self, ids: array[int], text: array[int], most: int) -> Match | None:
        """The longest match of the end of `ids` in `text`, which may be `ids` itself, with at most `most` tokens that
        followed; None where the last token does not stand in it with another after it."""
        if not ids or not text:
            return None
        out = self._out
        out[0] = min(most, at.MOST)
        length = self._search(text.buffer_info()[0], len(text), ids.buffer_info()[0], len(ids), self._address)
        if not length:
            return None
        count, first, votes = out[at.FOUND // WORDS], at.TOKENS // WORDS, at.VOTES // WORDS
        return Match(
            length,
            out[at.AT // WORDS],
            tuple(out[first : first + count]),
            tuple(out[votes : votes + count]),
            out[(at.PAIRS if length > 1 else at.SINGLES) // WORDS],
        )


def compiled() -> Callable[[int, int, int, int, int], int]:
    """The search for this processor, compiled the first time; EngineError where it cannot be."""
    try:
        from localspec.engine.cpu.isa import choose
        from localspec.engine.cpu.program import load_search
    except ImportError as fault:
        raise EngineError(f"Look-up needs {fault.name}, which is not installed.", hint="Use --draft off.") from fault
    return load_search(choose())


def joined(texts: Sequence[Sequence[int]]) -> array[int]:
    """Several texts as one, in which no match runs from one into the next."""
    whole = array("i")
    for text in texts:
        whole.extend(text)
        whole.append(GAP)
    return whole
