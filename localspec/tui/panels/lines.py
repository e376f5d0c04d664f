"""A long text as numbered lines that scroll: only those in sight are made, so a megabyte costs no more than a page."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from localspec.core.sanitize import clean

TAB = " " * 4


class Lines(ScrollView, can_focus=True):
    """Wraps at the width; the number stands before the first part of a line."""

    DEFAULT_CSS = "Lines { overflow-x: hidden; overflow-y: scroll; }"  # else the width would change with the height
    COMPONENT_CLASSES: ClassVar[set[str]] = {"lines--number"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.lines = clean(text).removesuffix("\n").expandtabs(len(TAB)).split("\n")
        self._rows: list[tuple[int, str]] = []  # the number, 0 for what is wrapped, and the text
        self._width = 0

    def on_resize(self) -> None:
        width = self.scrollable_content_region.width
        if width != self._width:
            self._width = width
            self._wrap(max(1, width - self._gutter))
            self.virtual_size = Size(width, len(self._rows))

    @property
    def _gutter(self) -> int:
        return len(str(len(self.lines))) + 2

    def _wrap(self, width: int) -> None:
        self._rows = [
            (number if part == 0 else 0, text)
            for number, line in enumerate(self.lines, 1)
            for part, text in enumerate(wrapped(line, width))
        ]

    def render_line(self, y: int) -> Strip:
        row = self.scroll_offset.y + y
        style, muted = self.rich_style, self.get_component_rich_style("lines--number")
        if row >= len(self._rows):
            return Strip.blank(self._width, style)
        number, text = self._rows[row]
        gutter = f"{number or '':>{self._gutter - 2}}  "
        return Strip([Segment(gutter, muted), Segment(text, style)]).adjust_cell_length(self._width, style)


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
