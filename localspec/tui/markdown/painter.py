"""Draws what has changed, once. Textual draws every widget that stands in the lines of a change, also those that
others hide: for a word of an answer all that it stands in, eight containers as high as the screen. Saves 0.04 of a
core (docs/textual.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from localspec.tui.markdown.marks import TALLEST, Marks

if TYPE_CHECKING:
    Mixin = Screen[None]
else:
    Mixin = object  # as in layout

Span = tuple[int, int, int]
"""A line, and from where to where in it."""
Line = dict[int, Strip | None]
"""What stands at each of its cuts, which are where widgets begin; None where nothing was asked for."""
Seen = dict[Widget, tuple[Region, Region]]
"""Where each widget in sight stands, and what clips it, from front to back."""


class Painter(Compositor):
    """Composes widgets from front to back, and skips what would be painted over. `marks` are drawn over what they
    find."""

    marks: Marks | None = None
    _painted: Seen = {}  # noqa: RUF012 - replaced whole, never changed
    _cut: tuple[Seen | None, list[list[int]]] = (None, [])

    @property
    def cuts(self) -> list[list[int]]:
        """The columns where widgets begin and end in each line, but for edges that others hide: an emoji over one would
        be cut into two blanks."""
        if self._cut[0] is not self.visible_widgets:
            self._cut = self.visible_widgets, self._edges()
        return self._cut[1]

    def _edges(self) -> list[list[int]]:
        width, height = self.size
        edges = [{0, width} for _ in range(height)]
        in_front: list[list[tuple[int, int]]] = [[] for _ in range(height)]
        for region, clip in self.visible_widgets.values():
            seen = region.intersection(clip)
            left, right = span = seen.column_span
            for y in seen.line_range:
                if span in in_front[y]:
                    continue
                begins = ends = True
                for start, end in in_front[y]:  # in plain steps: this runs at every layout
                    begins = begins and not start < left < end
                    ends = ends and not start < right < end
                edges[y].update((left,) * begins + (right,) * ends)
                in_front[y].append(span)
        return [sorted(line) for line in edges]

    def render_partial_update(self) -> ChopsUpdate | None:
        self._notice_moves()
        changed = {region.intersection(self.size.region) for region in self._dirty_regions}
        self._dirty_regions.clear()
        spans = list(self._regions_to_spans(changed))
        return ChopsUpdate(self._paint(spans), spans, [cuts[1:] for cuts in self.cuts]) if spans else None

    def render_full_update(self, simplify: bool = False) -> LayoutUpdate:
        self._painted = self.visible_widgets
        return super().render_full_update(simplify)

    def _notice_moves(self) -> None:
        """What stands elsewhere than it was painted has changed. Textual finds that out while it lays out, but not
        where a widget's position was asked for before: by then its map has the new one."""
        moved = self.visible_widgets.items() ^ self._painted.items()
        self._dirty_regions.update(region.intersection(clip) for _, (region, clip) in moved)
        self._painted = self.visible_widgets

    def _render_chops(self, crop: Region, is_rendered_line: Callable[[int], bool]) -> Sequence[Mapping[int, Strip]]:
        return self._paint((y, *crop.column_span) for y in crop.line_range if is_rendered_line(y))  # type: ignore[return-value]

    def _paint(self, spans: Iterable[Span]) -> list[Line]:
        lines: list[Line] = [dict.fromkeys(cuts[:-1]) for cuts in self.cuts]
        bare: dict[int, set[int]] = {}  # cuts of lines
        for y, start, end in spans:
            bare.setdefault(y, set()).update(
                cut for cut, after in pairwise(self.cuts[y]) if cut < end and after > start
            )
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            left, right = seen.column_span
            wanted = [y for y in seen.line_range if any(left <= cut < right for cut in bare.get(y, ()))]
            if wanted:
                top, height = wanted[0], wanted[-1] + 1 - wanted[0]
                strips = self._strips(widget, region, Region(left - region.x, top - region.y, seen.width, height))
                for y in wanted:
                    cuts = [cut for cut in self.cuts[y] if left < cut <= right]
                    pieces = strips[y - top].divide([cut - left for cut in cuts])
                    found = {cut: piece for cut, piece in zip([left, *cuts], pieces, strict=False) if cut in bare[y]}
                    lines[y].update(found)
                    bare[y] -= found.keys()
        return lines

    def _strips(self, widget: Widget, region: Region, part: Region) -> list[Strip]:
        """A part of the widget. Where words are marked all of it is drawn: a hit may begin out of sight."""
        if self.marks is None or region.height > TALLEST or not self.marks.reads(widget):
            return widget.render_lines(part)
        whole = self.marks.over(widget, widget.render_lines(Region(0, 0, region.width, region.height)))
        left, right = part.column_span
        return [strip.crop(left, right) for strip in whole[part.y : part.bottom]]


class Painted(Mixin):
    """Mixin for a screen that a `Painter` draws. What is selected on it may begin or end out of sight."""

    def __init__(self) -> None:
        super().__init__()
        self._compositor = self._painter = Painter()

    def mark(self, marks: Marks | None) -> None:
        """Draws these marks, and none of those before."""
        if marks is not None or self._painter.marks is not None:
            self._painter.marks = marks
            self.refresh()

    def watch__selecting(self) -> None:
        self.refresh(layout=True)
