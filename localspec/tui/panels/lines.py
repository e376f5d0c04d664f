"""A long text as numbered lines that scroll: only those in sight are made, so a megabyte costs no more than a page.
Words may be marked in it, and walked through."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import ClassVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from localspec.core.sanitize import clean
from localspec.tui.chat.word_matches import spans
from localspec.tui.markdown.marks import marked

TAB = " " * 4
ABOVE = 3  # of the height, a third is above the hit


class Lines(ScrollView, can_focus=True):
    """Wraps at the width; the number stands before the first part of a line, `first` before that of the first. `sought`
    is marked, and the hit with the number `chosen` is in sight."""

    DEFAULT_CSS = "Lines { overflow-x: hidden; overflow-y: scroll; }"  # else the width would change with the height
    COMPONENT_CLASSES: ClassVar[set[str]] = {"lines--number", "lines--hit", "lines--chosen"}

    def __init__(self, text: str, sought: re.Pattern[str] | None = None, first: int = 1) -> None:
        super().__init__()
        self._first = first
        whole = clean(text).removesuffix("\n").expandtabs(len(TAB))
        self.lines = whole.split("\n")
        self.hits = spans(whole, sought) if sought is not None else []  # where in the whole text
        self.chosen = 0
        self._rows: list[tuple[int, str]] = []  # the number, 0 for what is wrapped, and the text
        self._starts: list[int] = []  # where in the whole text each row begins
        self._width = 0

    def walk(self, direction: int) -> None:
        """Chooses the next hit, or the one before."""
        if self.hits:
            self.chosen = (self.chosen + direction) % len(self.hits)
            self._bring()
            self.refresh()

    def on_resize(self) -> None:
        width = self.scrollable_content_region.width
        if width != self._width:
            self._width = width
            self._wrap(max(1, width - self._gutter))
            self.virtual_size = Size(width, len(self._rows))
            self.call_after_refresh(self._bring)

    def _bring(self) -> None:
        """The chosen hit comes into sight."""
        if self.hits and self._starts:
            row, height = bisect_right(self._starts, self.hits[self.chosen][0]) - 1, self.size.height
            if not 0 <= row - self.scroll_offset.y < height:
                self.scroll_to(y=row - height // ABOVE, animate=False, immediate=True)

    @property
    def _gutter(self) -> int:
        return len(str(self._first + len(self.lines) - 1)) + 2

    def _wrap(self, width: int) -> None:
        self._rows, self._starts, at = [], [], 0
        for number, line in enumerate(self.lines, self._first):
            for part, text in enumerate(wrapped(line, width)):
                self._rows.append((number if part == 0 else 0, text))
                self._starts.append(at)
                at += len(text)
            at += 1  # the end of the line

    def render_line(self, y: int) -> Strip:
        row = self.scroll_offset.y + y
        style, muted = self.rich_style, self.get_component_rich_style("lines--number")
        if row >= len(self._rows):
            return Strip.blank(self._width, style)
        number, text = self._rows[row]
        gutter = f"{number or '':>{self._gutter - 2}}  "
        strip = Strip([Segment(gutter, muted), Segment(text, style)])
        return marked(strip, [*self._marks(row)]).adjust_cell_length(self._width, style)

    def _marks(self, row: int) -> Iterator[tuple[int, int, Style]]:
        """The cells of the row that hits take, each with its style."""
        start, text = self._starts[row], self._rows[row][1]
        for number in range(bisect_right(self.hits, start, key=lambda hit: hit[1]), len(self.hits)):
            first, last = self.hits[number]
            if first >= start + len(text):
                break
            kind = "lines--chosen" if number == self.chosen else "lines--hit"
            before, until = text[: max(0, first - start)], text[: last - start]
            style = self.get_component_rich_style(kind, partial=True)
            yield self._gutter + cell_len(before), self._gutter + cell_len(until), style


def wrapped(line: str, width: int) -> list[str]:
    """The line in parts of this many cells, cut after a blank where it has one, and beside a wide letter anywhere."""
    parts, at = list[str](), 0
    while (end := at + fitting(line[at : at + 2 * width], width)) < len(line):
        cut = line.rfind(" ", at, end) + 1
        is_wide = cell_len(line[end - 1 : end + 1]) > 2
        cut = cut if cut > at and not is_wide else end
        parts.append(line[at:cut])
        at = cut
    return [*parts, line[at:]]


def fitting(text: str, width: int) -> int:
    """How many of the letters stand in this many cells; at least one."""
    return max(1, width if text.isascii() else len((chop_cells(text, width) or [text])[0]))
