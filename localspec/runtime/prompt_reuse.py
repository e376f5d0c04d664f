"""Keeps the ids of turns whose text did not change, so that the next turn re-reads only what is new.

A model's own answer need not be spelled in the ids that encoding its text gives. Knows ids and their text, no model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

Decode = Callable[[list[int]], str]


def keep_spelling(known: Sequence[int], ids: Sequence[int], control_ids: Collection[int], decode: Decode) -> list[int]:
    """`ids`, with each leading stretch between control tokens spelled as `known` spells it where the text is equal."""
    kept: list[int] = []
    mine, theirs = stretches(ids, control_ids), stretches(known, control_ids)
    for index, (new, old) in enumerate(zip(mine, theirs, strict=False)):
        if new != old and not (new[:1] == old[:1] and decode(new) == decode(old)):
            return [*kept, *flatten(mine[index:])]
        kept.extend(old)
    return [*kept, *flatten(mine[len(theirs) :])]


def stretches(ids: Sequence[int], control_ids: Collection[int]) -> list[list[int]]:
    """Cut before and after every control token."""
    parts: list[list[int]] = []
    words: list[int] = []
    for token in ids:
        if token in control_ids:
            parts += [words] * bool(words) + [[token]]
            words = []
        else:
            words.append(token)
    return parts + [words] * bool(words)


def flatten(parts: Sequence[Sequence[int]]) -> list[int]:
    return [token for part in parts for token in part]
