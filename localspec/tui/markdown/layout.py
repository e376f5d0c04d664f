"""How a growing answer is laid out at little cost: five mixins, each listed before the widget's own class.

Knows sizes and texts, and nothing about what the widgets contain. `GrowingText` saves 0.12 of a core, `Aside` 0.10,
`GrowingScroll` and `Pile` 0.04 each, `Tall` 0.03 (docs/textual.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.content import Content
from textual.geometry import Region, Size
from textual.layout import DockArrangeResult, WidgetPlacement
from textual.widget import Widget
from textual.widgets import Static

if TYPE_CHECKING:
    from textual.css.styles import RulesMap

    Mixin = Widget
else:
    Mixin = object  # Textual styles a widget as its first base that is one

LINES_AHEAD = 5


class Tall(Mixin):
    """Mixin for a widget that may be given another size without the screen being laid out again: its height follows
    from its width, as that of text does.
    """

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:  # noqa: ARG002
        """Textual lays out the screen again for every widget that has just been given another size."""
        return super()._size_updated(size, virtual_size, container_size, layout=False)


class Unplaced(DockArrangeResult):
    """An arrangement as large as the whole. Textual asks for what comes into sight where it scrolls, and else for
    all."""

    def __init__(self, whole: DockArrangeResult) -> None:
        super().__init__([], whole.widgets, whole.scroll_spacing, whole.spatial_map)
        self.whole = whole

    def get_visible_placements(self, region: Region) -> list[WidgetPlacement]:
        return self.whole.get_visible_placements(region)


class Aside(Mixin):
    """Mixin for a finished part of what scrolls: out of sight it is not laid out again with every line that comes.

    The widget's own class says when it is finished. Scrolled to, it is there at once.
    """

    is_finished = False
    _rests = False

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        whole = super().arrange(size, optimal)
        return Unplaced(whole) if self._rests and not self.screen._selecting else whole

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        """Noticed after every layout, and by scrolling where it comes into sight."""
        is_in_sight = self in self.screen._compositor.visible_widgets
        if is_in_sight and self._rests:
            self.refresh(layout=True)
        self._rests = self.is_finished and not is_in_sight
        return super()._size_updated(size, virtual_size, container_size, layout)


if TYPE_CHECKING:

    class TallWidget(Tall, Widget):
        """A container."""

    class TallText(Tall, Static):
        """A text."""
else:
    TallWidget = TallText = Tall


class GrowingScroll(Mixin):
    """Mixin for a container that scrolls: what is in it may grow without the screen being laid out twice."""

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        layout = layout and (size, container_size) != (self._size, self._container_size)
        return super()._size_updated(size, virtual_size, container_size, layout)


class Pile(TallWidget):
    """Mixin for a container of widgets that stand one below another, with nothing of its own around them."""

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """Arranges for any height: Textual asks again with the height it has found itself, for the same result."""
        return super().arrange(Size(size.width, 0), optimal)


class GrowingText(TallText):
    """Mixin for a text that grows at its end. Lines are reserved ahead of it, so that most words only have to be drawn.

    To lay out a line costs as much as to draw the screen, since all widgets find their positions again.
    """

    _reserved = 0  # lines that are laid out for it, whether it needs them yet or not
    _reserved_width = 0  # at which they were counted; 0 where they were not

    def grow(self, old: Content, new: Content) -> None:
        """Show this in place of what is shown."""
        if old.is_same(new):
            return
        width, height = self.content_size
        lines = new.get_height(cast("RulesMap", self.styles), width) if width else height + 1
        if lines <= height and self._is_wide_enough(new, width):
            self.update(new, layout=False)
        else:
            self._reserved, self._reserved_width = lines + LINES_AHEAD, width
            self.update(new)

    def reserve(self) -> None:
        """Reserves lines for text that is to come, beyond those it has."""
        if not self._reserved:
            self._reserved, self._reserved_width = LINES_AHEAD, 0
            self.refresh(layout=True)

    def settle(self) -> None:
        """Gives reserved lines back once nothing more is added."""
        if self._reserved:
            self._reserved = 0
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        lines = super().get_content_height(container, viewport, width)
        if self._reserved and 0 < self._reserved_width != width:  # the terminal was given another size meanwhile
            self._reserved, self._reserved_width = lines + LINES_AHEAD, width
        return max(lines, self._reserved)

    def _is_wide_enough(self, content: Content, width: int) -> bool:
        return not self.styles.is_auto_width or content.get_optimal_width(cast("RulesMap", self.styles), width) <= width
