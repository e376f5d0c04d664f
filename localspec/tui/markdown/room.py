"""A text that grows at its end. Lines are laid out ahead of it, so that most of its words only have to be drawn: to lay
out a line costs as much as to draw the screen, since all widgets find their places again. Knows texts, and nothing of
who writes them.
"""

from __future__ import annotations

from os.path import commonprefix
from typing import TYPE_CHECKING, cast

from textual.content import Content
from textual.geometry import Region, Size
from textual.widgets import Static

from localspec.tui.markdown.tall import Tall

if TYPE_CHECKING:
    from textual.css.styles import RulesMap

    class Base(Tall, Static):
        """A text."""
else:
    Base = Tall  # a mixin too

LINES_AHEAD = 5


def standing(old: Content, new: Content) -> Content:
    """The words with which both begin, as far as they look the same."""
    differing = min((span.start for span in {*old.spans} ^ {*new.spans}), default=len(new))
    shared = commonprefix((old.plain, new.plain))[:differing]  # noqa: RUF071 - by characters is what is meant
    return Content(shared[: max(shared.rfind(" "), shared.rfind("\n")) + 1])


class Roomy(Base):
    """To be named before the widget's own class."""

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
        """More is to come: lines for it, with those that it has its first place for."""
        if not self._room:
            self._room, self._room_width = LINES_AHEAD, 0
            self.refresh(layout=True)

    def settle(self) -> None:
        """Nothing more is added: it takes no more lines than it has."""
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
