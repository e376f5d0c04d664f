"""Plain text in columns, by the cells that a terminal gives each character. Knows nothing about chats."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Collection, Iterator, Sequence

GAP = "  "


def cells(text: str) -> int:
    """The width of a text on a terminal."""
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, width: int, *, keep_end: bool = False) -> str:
    """The text within this width; where it is longer, its end or its beginning is replaced by an ellipsis."""
    if cells(text) <= width:
        return text
    kept, left = list[str](), width - 1
    for char in reversed(text) if keep_end else text:
        left -= _cells(char)
        if left < 0:
            break
        kept.append(char)
    return f"…{''.join(reversed(kept)).lstrip('…')}" if keep_end else f"{''.join(kept)}…"


def fitted(widths: Sequence[int], left: int, least: int) -> list[int]:
    """Widths for further columns, one after the other, each with its gap; 0 for one that would have less than `least`,
    unless it needs no more."""
    given = list[int]()
    for width in widths:
        free = left - len(GAP)
        given.append(min(width, free) if free >= min(width, least) else 0)
        left -= given[-1] + len(GAP) if given[-1] else 0
    return given


def columns(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Lines with aligned columns; those in `right` are right-aligned."""
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    return "\n".join(GAP.join(padded(row, widths, right)).rstrip() for row in rows)


def padded(row: Sequence[str], widths: Sequence[int], right: Collection[int]) -> Iterator[str]:
    for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
        gap = " " * (width - cells(cell))
        yield gap + cell if index in right else cell + gap


def hanging(rows: Sequence[tuple[str, str]], width: int | None) -> str:
    """Labels and texts beside them; within this width the texts are wrapped between words."""
    left = max(cells(label) for label, _ in rows) + len(GAP)
    lines = list[tuple[str, str]]()
    for label, text in rows:
        parts = (
            textwrap.wrap(text, max(1, width - left), break_long_words=False, break_on_hyphens=False) if width else ()
        )
        first, *others = parts or [text]
        lines += [(label, first), *(("", other) for other in others)]
    return columns(lines)
