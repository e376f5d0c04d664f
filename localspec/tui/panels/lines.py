"""A long text as numbered lines that scroll: only those in sight are made, so a megabyte costs no more than a page."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import chop_cells
from rich.segment import Segment
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from localspec.core.sanitize import clean

TAB = " " * 4
LONGEST = 20_000  # letters of a line that are shown


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
            for part, text in enumerate(wrapped(line[:LONGEST], width))
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
    """The line in parts of this width, cut after a blank where it has one."""
    if not line.isascii():
        return chop_cells(line, width)
    parts, at = list[str](), 0
    while len(line) - at > width:
        cut = line.rfind(" ", at, at + width) + 1
        cut = cut if cut > at else at + width
        parts.append(line[at:cut])
        at = cut
    return [*parts, line[at:]]
