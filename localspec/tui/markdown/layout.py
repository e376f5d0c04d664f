"""How a growing answer is laid out at little cost: four mixins, each listed before the widget's own class.

Knows sizes and texts, and nothing about what the widgets contain.
"""

from __future__ import annotations

from os.path import commonprefix
from typing import TYPE_CHECKING, cast

from textual.content import Content
from textual.geometry import Region, Size
from textual.layout import DockArrangeResult, WidgetPlacement
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

if TYPE_CHECKING:
    from textual.css.styles import RulesMap

    Mixin = Widget
else:
    Mixin = object  # Textual styles a widget as its first base that is one

LINES_AHEAD = 5


class Tall(Mixin):
    """Mixin for a widget whose height depends on its width alone, as that of text does.

    Textual asks for it with the height of what stands around it, which grows with every line of an answer, and so would
    lay out again all that stands above the last one.
    """

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return super().get_content_height(Size(container.width, 0), viewport, width)

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


class Pile(TallWidget):
    """Mixin for a container of widgets that stand one below another, with nothing of its own around them."""

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """Arranges for any height: Textual asks again with the height it has found itself, for the same result."""
        return super().arrange(Size(size.width, 0), optimal)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Each looks like the next, and is drawn once for all."""
        return super().render_lines(crop.crop_size((crop.width, 1))) * crop.height


def standing(old: Content, new: Content) -> Content:
    """The words with which both begin, as far as they look the same."""
    differing = min((span.start for span in {*old.spans} ^ {*new.spans}), default=len(new))
    shared = commonprefix((old.plain, new.plain))[:differing]  # noqa: RUF071 - by characters is what is meant
    return Content(shared[: max(shared.rfind(" "), shared.rfind("\n")) + 1])


class GrowingText(TallText):
    """Mixin for a text that grows at its end. Lines are reserved ahead of it, so that most words only have to be drawn.

    To lay out a line costs as much as to draw the screen, since all widgets find their positions again.
    """

    _room = 0  # lines that are laid out for it, whether it needs them yet or not
    _room_width = 0  # at which they were counted; 0 where they were not
    _changed: tuple[Region, ...] = ()

    def grow(self, old: Content, new: Content) -> None:
        """Show this in place of what is shown; only what differs is drawn."""
        if old.is_same(new):
            return
        width, height = self.content_size
        lines = new.get_height(cast("RulesMap", self.styles), width) if width else height + 1
        if lines <= height and self._is_wide_enough(new, width):
            first = max(0, self._lines(standing(old, new), width) - 1)  # a word may fall to the next line
            self._changed = (Region(0, first, width, height - first),)
            self.update(new, layout=False)
            self._changed = ()
        else:
            self._room, self._room_width = lines + LINES_AHEAD, width
            self.update(new)

    def reserve(self) -> None:
        """Reserves lines for text that is to come, beyond those it has."""
        if not self._room:
            self._room, self._room_width = LINES_AHEAD, 0
            self.refresh(layout=True)

    def settle(self) -> None:
        """Gives reserved lines back once nothing more is added."""
        if self._room:
            self._room = 0
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        lines = super().get_content_height(container, viewport, width)
        if self._room and 0 < self._room_width != width:  # the terminal was given another size meanwhile
            self._room, self._room_width = lines + LINES_AHEAD, width
        return max(lines, self._room)

    def _lines(self, content: Content, width: int) -> int:
        return content.get_height(cast("RulesMap", self.styles), width)

    def _is_wide_enough(self, content: Content, width: int) -> bool:
        return not self.styles.is_auto_width or content.get_optimal_width(cast("RulesMap", self.styles), width) <= width

    def _set_dirty(self, *regions: Region) -> None:
        super()._set_dirty(*(regions or self._changed))
