"""A text with a mark below each token that says who wrote it. Needs no colour; knows no chat.

Drafts it.
1--2--!--.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from localspec.core.events import Source, Step, Token
from localspec.core.sanitize import clean
from localspec.history.text.columns import cells

PLACES = "123456789abcdefghijklmnopqrstuvwxyz"  # of a draft; the longest has 16
MARKS: dict[Source, str] = {"bonus": "+", "fix": "!", "plain": "."}
GOES_ON, UNKNOWN = "-", " "
LEGEND = (
    "Below each line stands who wrote its tokens: 1, 2, 3 … drafted, by place in the draft (a is the tenth) · + bonus\n"
    "· ! fix, where the draft was wrong · . plain, without a draft · - the token goes on. ↵ is a line break."
)
TAB = " " * 4


def marked(content: str, steps: Sequence[Step], *, width: int) -> str:
    """The text in lines of so many cells, each with its line of marks."""
    lines, text, marks = [], "", ""
    for char, mark in drawn(written(content, steps)):
        if char == "\n" or len(marks) + len(mark) > width:
            lines += [text, marks.rstrip()]
            text = marks = ""
        if char != "\n":
            text, marks = text + char, marks + mark
    return "\n".join([*lines, text, marks.rstrip()]).rstrip("\n")


def written(content: str, steps: Sequence[Step]) -> Iterator[tuple[str, str]]:
    """Each token's text with its mark; what stands before them, or is not theirs, nobody knows about."""
    tokens = [token for step in steps for token in step.tokens]
    known = "".join(token.text for token in tokens)
    if not content.endswith(known):
        yield content, UNKNOWN
        return
    yield content.removesuffix(known), UNKNOWN
    yield from ((token.text, mark_of(token)) for token in tokens)


def mark_of(token: Token) -> str:
    return MARKS.get(token.source) or PLACES[min(token.pos or 0, len(PLACES) - 1)]


def drawn(texts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Each character with a mark for each of its cells; the first that has a cell shows whose it is."""
    for text, whose in texts:
        mark = whose
        for char in clean(text).replace("\t", TAB).replace("\n", "↵\n"):
            goes_on = UNKNOWN if whose == UNKNOWN else GOES_ON
            size = cells(char)
            yield char, mark.ljust(size, goes_on)[:size]
            mark = goes_on if size else mark
