"""Tells a question that only the turns before it explain, "does it cost memory?", from one that stands alone.

By its words: for a small model, which answers a question that stands alone better without other questions before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from localspec.core.requests import Message

WORD = re.compile(r"[a-z0-9'-]+")
REFERRING = frozenset(
    """it it's its that that's this these those they them their there one ones others else instead again too also
    more shorter longer simpler example examples previous earlier above both such""".split()  # noqa: SIM905
)
GOING_ON = frozenset("and but so or then ok okay yes no hm also".split())  # noqa: SIM905 - first words
FEWEST, MOST = (
    3,
    12,
)  # words: a shorter question names no subject, and in a longer one "it" stands for a word of its own


def is_follow_up(text: str) -> bool:
    words = WORD.findall(text.casefold().replace("’", "'"))
    if len(words) < FEWEST or words[0] in GOING_ON:
        return True
    return len(words) < MOST and not REFERRING.isdisjoint(words)


def without_earlier_turns(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation from its last question on, below the system prompt, where that question stands alone."""
    last = max((index for index, one in enumerate(messages) if one.role == "user"), default=0)
    if last == 0 or is_follow_up(messages[last].content):
        return tuple(messages)
    return (*(one for one in messages[:last] if one.role == "system"), *messages[last:])
