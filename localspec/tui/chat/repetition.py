"""Finds an answer that repeats itself: its end is the same line or phrase, TIMES times in a row; a paragraph fewer.

Looks at the last WINDOW characters alone, so a step costs the same however long the answer is. Knows text only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

TIMES = 8
LONG = 200  # characters of a line or a phrase
LONG_TIMES = 4  # of a paragraph, which is longer
LONGEST = 800
LEAST_SPAN = 24  # characters that it fills in all: of a laugh or a drawn-out word eight letters are few
SIGNS_SPAN = 250  # of emoji and cries, which are written in rows: a cheer has fewer
WINDOW = max(TIMES * LONG, LONG_TIMES * LONGEST)
PROBE = 8  # characters, which the end has in common with the phrase before it
LETTERS = re.compile(r"[^\W\d_]{2}")
WORD = re.compile(r"[^\W\d_]{2,}")
SIGN = re.compile("[!?\u2600-\u27bf\U0001f000-\U0001faff]")  # no line is ruled with these
NUMBER = re.compile(r"(\n[ \t]*)\d+(?=[.)]\s)")  # of a line in a list: they differ where all else repeats
ANY_NUMBER = "\N{NUMERO SIGN}"


class Repetition:
    """Watches an answer as it grows. What `so_far`, an answer that goes on, repeats already may go on."""

    def __init__(self, so_far: str = "") -> None:
        self._tail = so_far[-WINDOW:]
        self._allowed = repeated(self._tail)

    def add(self, text: str, *, in_code: bool) -> bool:
        """Adds what was written; whether the end repeats itself now."""
        self._tail = (self._tail + text)[-WINDOW:]
        phrase = repeated(self._tail, in_code=in_code)
        return bool(phrase) and not is_rotated(phrase, self._allowed)


def repeated(text: str, *, in_code: bool = False) -> str:
    """The shortest phrase that the end of the text repeats, wherever it begins in it; "" for none.

    A phrase has words: blanks, rules, zeros and brackets repeat rightly. In code it has two of them, since `</div>`,
    `end` and `False,` do, too; and in a numbered list, since ten questions may all be answered by yes. Outside of code
    it may be emoji alone, where many lines are full of them.
    """
    tail = text[-WINDOW:] if in_code else NUMBER.sub(rf"\1{ANY_NUMBER}", text[-WINDOW:])
    period = next((period for period in candidates(tail) if fills(tail, period)), 0)
    phrase = tail[len(tail) - period :]
    if has_words(phrase, two=in_code or ANY_NUMBER in phrase):
        return phrase
    has_signs = not in_code and SIGN.search(phrase) is not None
    return phrase if has_signs and fills(tail, period, SIGNS_SPAN) else ""


def candidates(tail: str) -> Iterator[int]:
    """How far before the end the last characters stand as well, the shortest distance first."""
    if len(tail) < LEAST_SPAN:
        return
    end, last = tail[-PROBE:], len(tail) - PROBE
    at = last
    while (at := tail.rfind(end, max(0, last - LONGEST), at + PROBE - 1)) >= 0:
        yield last - at


def fills(tail: str, period: int, least: int = LEAST_SPAN) -> bool:
    """Whether the end is one phrase of this length over and over."""
    span = max((TIMES if period <= LONG else LONG_TIMES) * period, least)
    return span <= len(tail) and tail[-span:-period] == tail[period - span :]


def has_words(phrase: str, *, two: bool) -> bool:
    if not two:
        return LETTERS.search(phrase + phrase) is not None
    whole = WORD.findall(4 * phrase)[1:-1]  # the first and the last may be cut
    return len(set(whole)) > 1


def is_rotated(phrase: str, other: str) -> bool:
    """Whether both are one phrase, begun at different letters."""
    return len(phrase) == len(other) and phrase in other + other
