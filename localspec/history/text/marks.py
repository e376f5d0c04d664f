"""A text with a mark below each token that says where it came from. Needs no colour; knows no chat.

Drafts it.
1--2--!--.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from localspec.core.events import Source, Step, Token
from localspec.core.sanitize import clean
from localspec.history.text.columns import cells

POSITIONS = "123456789abcdefghijklmnopqrstuvwxyz"  # in a draft; the longest has 16
MARKS: dict[Source, str] = {"bonus": "+", "fix": "!", "plain": ".", "edited": "*"}
LOOKUP, LOOKED_UP = "lookup", "="  # a kind of drafter, and its mark
CONTINUES, UNKNOWN = "-", " "
LEGEND = (
    "The marks below each line say who wrote its tokens: 1, 2, 3 … drafted, by position (a is the tenth) · = drafted\n"
    "by look-up · + bonus · ! fix, where the draft was wrong · . plain, without a draft · * edited by you · - the\n"
    "token continues. ↵ is a line break."
)
TAB = " " * 4


def marked(content: str, steps: Sequence[Step], *, width: int) -> str:
    """The text in lines of `width` cells, each with a line of marks below."""
    lines, text, marks = [], "", ""
    for char, mark in drawn(written(content, steps)):
        if char == "\n" or len(marks) + len(mark) > width:
            lines += [text, marks.rstrip()]
            text = marks = ""
        if char != "\n":
            text, marks = text + char, marks + mark
    return "\n".join([*lines, text, marks.rstrip()]).rstrip("\n")


def written(content: str, steps: Sequence[Step]) -> Iterator[tuple[str, str]]:
    """Each token's text with its mark; text of unknown origin gets a blank one."""
    tokens = [token for step in steps for token in step.tokens]
    known = "".join(token.text for token in tokens)
    if not content.endswith(known):
        yield content, UNKNOWN
        return
    yield content.removesuffix(known), UNKNOWN
    yield from ((token.text, mark_of(token)) for token in tokens)


def mark_of(token: Token) -> str:
    if token.drafter == LOOKUP:
        return LOOKED_UP
    return MARKS.get(token.source) or POSITIONS[min(token.pos or 0, len(POSITIONS) - 1)]


def drawn(texts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Each character with a mark for each of its cells; the first with a cell shows the token's mark."""
    for text, source_mark in texts:
        mark = source_mark
        for char in clean(text).replace("\t", TAB).replace("\n", "↵\n"):
            rest = UNKNOWN if source_mark == UNKNOWN else CONTINUES
            size = cells(char)
            yield char, mark.ljust(size, rest)[:size]
            mark = rest if size else mark
