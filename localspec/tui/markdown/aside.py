"""A part of what scrolls that is finished: out of sight it keeps its place, and what stands in it is given none again
with every line that comes. Scrolled to, it is there at once. Knows nothing about what it contains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Region, Size
from textual.layout import DockArrangeResult, WidgetPlacement
from textual.widget import Widget

if TYPE_CHECKING:
    Base = Widget
else:
    Base = object  # a mixin, as Tall is


class Unplaced(DockArrangeResult):
    """As large as the whole. Textual asks for what comes into sight where it scrolls, and else for all."""

    def __init__(self, whole: DockArrangeResult) -> None:
        super().__init__([], whole.widgets, whole.scroll_spacing, whole.spatial_map)
        self.whole = whole

    def get_visible_placements(self, region: Region) -> list[WidgetPlacement]:
        return self.whole.get_visible_placements(region)


class Aside(Base):
    """To be named before the widget's own class, which says when it is finished."""

    is_finished = False
    _rests = False

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        whole = super().arrange(size, optimal)
        return Unplaced(whole) if self._rests and not self.screen._selecting else whole

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        """Told after every layout, and by scrolling where it comes into sight."""
        is_in_sight = self in self.screen._compositor.visible_widgets
        if is_in_sight and self._rests:
            self.refresh(layout=True)
        self._rests = self.is_finished and not is_in_sight
        return super()._size_updated(size, virtual_size, container_size, layout)
