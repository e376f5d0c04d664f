"""A scrolling container in which what is read stays where it is, whatever comes, goes or grows above it.

The topmost child in sight is held at its position on the screen, in the moment children are laid out and not a frame
later: as Textual does for the end of an anchored container. Knows nothing about what it contains.
"""

from __future__ import annotations

from collections.abc import Collection

from textual.geometry import Size
from textual.layout import DockArrangeResult
from textual.scrollbar import ScrollBar
from textual.widget import Widget

from localspec.tui.markdown.anchor import AnchoredScroll


class StillScroll(AnchoredScroll):
    """A scroll view that keeps a child still while others change. A subclass says which children may be held; others
    may be removed."""

    _tops: dict[Widget, int] = {}  # noqa: RUF012 - replaced whole, never changed
    _held: tuple[Widget, float] | None = None  # and how far it is scrolled past its top

    def landmarks(self) -> Collection[Widget]:
        return self.children

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        found = super().arrange(size, optimal)
        if not optimal:
            self._tops = {child.widget: child.region.y for child in found.placements}
            self._stay(found.total_region.bottom - self.container_size.height)
        return found

    def moved(self, old_y: float, new_y: float) -> None:
        """Called when the user has scrolled; a subclass may act on it."""

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self.is_settling:
            self._hold()
            self.moved(old_value, new_value)

    def _hold(self) -> None:
        known = [widget for widget in self.landmarks() if widget in self._tops]
        above = [widget for widget in known if self._tops[widget] <= self.scroll_y]
        top = max(above, key=self._tops.__getitem__) if above else min(known, key=self._tops.__getitem__, default=None)
        self._held = (top, self.scroll_y - self._tops[top]) if top is not None else None

    def _stay(self, lowest: float) -> None:
        if self.follows:
            self._held = None
        elif self._held is None or self._held[0] not in self._tops:
            self._hold()
        else:
            widget, past = self._held
            self._jump(max(0.0, min(self._tops[widget] + past, lowest)))

    def _jump(self, scroll_y: float) -> None:
        """Scrolls without running watchers: children are being laid out."""
        if scroll_y != self.scroll_y:
            self.set_reactive(Widget.scroll_y, scroll_y)
            self.set_reactive(Widget.scroll_target_y, scroll_y)
            self.vertical_scrollbar.set_reactive(ScrollBar.position, scroll_y)
