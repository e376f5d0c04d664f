"""The compiled search behind look-up: where a conversation's last tokens stand in a text, and what followed them there.

One pass from the newest position to the oldest. It keeps nothing: a rewound conversation is only a shorter text.
Addresses and positions are int64, ids int32; a negative id separates two texts and equals none. Knows no tokens' text.
"""

from __future__ import annotations

from typing import Any  # Any: llvmlite is untyped

from numba import types

from localspec.engine.cpu import emit
from localspec.engine.cpu.emit import I32, I64
from localspec.engine.cpu.lang import INT, compiled, int_at, word
from localspec.engine.cpu.matches import AT, FOUND, LENGTH, LONGEST, MOST, PAIRS, SEEN, SINGLES, TOKENS, VOTES, WANTED


@word(INT, INT)
def id_at(b: Any, address: Any) -> Any:
    """Loads an int32."""
    return b.sext(emit.load(b, address, I32, align=4), I64)


@word(types.void, INT, INT)
def put(b: Any, address: Any, value: Any) -> None:
    """Stores an int64."""
    emit.store(b, value, address, align=8)


@compiled
def common(text: int, end: int, ids: int, length: int) -> int:
    """How many tokens before `end` are those before `length`, LONGEST at most; the last one is known to be."""
    most, count = min(end, length, LONGEST), 1
    while count < most and id_at(text + 4 * (end - 1 - count)) == id_at(ids + 4 * (length - 1 - count)):
        count += 1
    return count


@compiled
def note(seen: int, end: int) -> int:
    """Adds a position to the newest SEEN; returns how many there are."""
    count: int = int_at(seen)
    if count < SEEN:
        put(seen + 8 + 8 * count, end)
        count += 1
        put(seen, count)
    return count


@compiled
def search(text: int, last: int, ids: int, length: int, out: int) -> int:
    """Writes where the longest match ends, the newest of several, and the newest ends of shorter ones; returns its
    length."""
    best, pairs, token = 0, 0, id_at(ids + 4 * (length - 1))
    for end in range(last, 0, -1):
        if id_at(text + 4 * (end - 1)) != token or id_at(text + 4 * end) < 0:
            continue
        count = common(text, end, ids, length)
        note(out + SINGLES, end)
        if count > 1:
            pairs = note(out + PAIRS, end)
        if count > best:
            best = count
            put(out + AT, end)
        if best == LONGEST and pairs == SEEN:
            break
    return best


@compiled
def going_on(text: int, here: int, stop: int, is_same: int, out: int) -> int:
    """The id at a position; behind the end of the conversation itself, the one proposed for there. Negative: none."""
    token: int = -1
    if here < stop:
        token = id_at(text + 4 * here)
    elif is_same:
        token = int_at(out + TOKENS + 8 * (here - stop))
    return token


@compiled
def follow(text: int, start: int, stop: int, is_same: int, out: int) -> int:
    """Writes what follows `start`, up to a separator or `stop`; in the conversation itself, a copy that reaches the end
    goes on with what it has copied. Returns how many tokens."""
    wanted, count = min(int_at(out + WANTED), MOST), 0
    while count < wanted:
        token = going_on(text, start + count, stop, is_same, out)
        if token < 0:
            break
        put(out + TOKENS + 8 * count, token)
        count += 1
    return count


@compiled
def vote(text: int, stop: int, is_same: int, seen: int, count: int, out: int) -> None:
    """Counts, for each proposed token, the occurrences that went on so up to there."""
    for i in range(count):
        put(out + VOTES + 8 * i, 0)
    for which in range(int_at(seen)):
        start = int_at(seen + 8 + 8 * which)
        for i in range(count):
            if going_on(text, start + i, stop, is_same, out) != int_at(out + TOKENS + 8 * i):
                break
            put(out + VOTES + 8 * i, int_at(out + VOTES + 8 * i) + 1)


@compiled
def enter(text: int, stop: int, ids: int, length: int, out: int) -> int:
    """The entry point: looks for the last of `length` ids in `stop` ids of a text, which may be the same. Returns the
    length of the match, 0 for none; the rest is in `out` as matches.py says."""
    put(out + SINGLES, 0)
    put(out + PAIRS, 0)
    best = search(text, stop - 1, ids, length, out)
    put(out + LENGTH, best)
    if best == 0:
        return 0
    is_same = int(text == ids)
    count = follow(text, int_at(out + AT), stop, is_same, out)
    put(out + FOUND, count)
    vote(text, stop, is_same, out + (PAIRS if best > 1 else SINGLES), count, out)
    return best
