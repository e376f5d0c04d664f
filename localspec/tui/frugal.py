"""What of the screen is drawn when something on it has changed: of each widget the lines in which something has, and
nothing that others cover. Textual asks every widget for all its lines in a rectangle around all changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip


class Frugal(Compositor):
    """A line of the screen is cut where widgets begin and end; each piece is the one in front."""

    def render_partial_update(self) -> ChopsUpdate | None:
        changed = self._dirty_regions.copy()
        self._dirty_regions.clear()
        if not changed:
            return None
        spans = list(self._regions_to_spans(changed))
        wanted: list[set[int]] = [set() for _ in self.cuts]
        for y, start, end in spans:
            wanted[y].update(cut for cut, after in pairwise(self.cuts[y]) if cut < end and after > start)
        return ChopsUpdate(self._pieces(wanted), spans, [line[1:] for line in self.cuts])

    def _pieces(self, wanted: list[set[int]]) -> list[dict[int, Strip | None]]:
        """Those that are wanted, by their beginning."""
        found: list[dict[int, Strip | None]] = [dict.fromkeys(line[:-1]) for line in self.cuts]
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            first, last = seen.column_span
            lines = [y for y in seen.line_range if any(first <= cut < last for cut in wanted[y])]
            for run in runs(lines):
                crop = Region(first - region.x, run.start - region.y, seen.width, len(run))
                for y, strip in zip(run, widget.render_lines(crop), strict=False):
                    cuts = [cut for cut in self.cuts[y] if first <= cut <= last]
                    pieces = zip(cuts, strip.divide([cut - first for cut in cuts[1:]]), strict=False)
                    found[y].update((cut, piece) for cut, piece in pieces if cut in wanted[y])
                    wanted[y].difference_update(cuts[:-1])
        return found


def runs(numbers: Iterable[int]) -> Iterator[range]:
    """Of numbers that rise, those that follow one another."""
    start = end = -1
    for number in numbers:
        if number != end:
            if end > start:
                yield range(start, end)
            start = number
        end = number + 1
    if end > start:
        yield range(start, end)
