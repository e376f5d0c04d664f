"""Marks words in what is drawn: a style over the lines of a widget, whatever it contains. Knows strips; no messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

Cells = tuple[int, int, int]
"""A line of a widget, and from where to where in it."""
TALLEST = 1000  # lines of a widget that is marked as a whole


@dataclass(frozen=True, slots=True)
class Marks:
    """`find` gives the spans of a text, and `reads` says which widgets have one. `chosen`: a widget, and the number of
    the hit in it that has a style of its own.
    """

    find: Callable[[str], Sequence[tuple[int, int]]]
    reads: Callable[[Widget], bool]
    style: Style
    chosen_style: Style
    chosen: tuple[Widget, int] | None = None

    def over(self, widget: Widget, strips: list[Strip]) -> list[Strip]:
        """All of a widget's lines, marked."""
        pieces: dict[int, list[tuple[int, int, Style]]] = {}
        number = self.chosen[1] if self.chosen is not None and self.chosen[0] is widget else None
        for index, cells in enumerate(self.hits(strips)):
            style = self.chosen_style if index == number else self.style
            for y, start, end in cells:
                pieces.setdefault(y, []).append((start, end, style))
        return [marked(strip, pieces[y]) if y in pieces else strip for y, strip in enumerate(strips)]

    def hits(self, strips: Sequence[Strip]) -> list[list[Cells]]:
        """The cells of each hit; one that is wrapped has a piece in each of its lines."""
        texts = [strip.text.rstrip() for strip in strips]
        return [pieces(texts, start, end) for start, end in self.find("\n".join(texts))]


def pieces(lines: Sequence[str], start: int, end: int) -> list[Cells]:
    """The parts of a span of the joined lines that stand in each of them."""
    found: list[Cells] = []
    for y, line in enumerate(lines):
        first, last = start if start >= 0 else len(line) - len(line.lstrip()), min(end, len(line))
        if first < last:
            found.append((y, cell_len(line[:first]), cell_len(line[:last])))
        start, end = start - len(line) - 1, end - len(line) - 1
        if end <= 0:
            break
    return found


def marked(strip: Strip, spans: Sequence[tuple[int, int, Style]]) -> Strip:
    """The strip with these styles over what stands there; the spans are in order and do not meet."""
    parts, at = list[Strip](), 0
    for start, end, style in spans:
        parts += [strip.crop(at, start), restyled(strip.crop(start, end), style)]
        at = end
    return Strip.join([*parts, strip.crop(at, strip.cell_length)])


def restyled(strip: Strip, style: Style) -> Strip:
    return Strip([Segment(text, (own or Style()) + style, control) for text, own, control in strip], strip.cell_length)
