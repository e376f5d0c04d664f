"""A container of things that stand one below another, each as high as what it says is long; nothing of its own is
above, below or between them. Knows nothing about what they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Region, Size
from textual.layout import DockArrangeResult
from textual.strip import Strip

from localspec.tui.markdown.tall import Tall

if TYPE_CHECKING:
    from textual.widget import Widget

    class Base(Tall, Widget):
        """A container."""
else:
    Base = Tall  # a mixin too


class Pile(Base):
    """To be named before the widget's own class."""

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """With the height it has found itself it is asked again: for the same."""
        return super().arrange(Size(size.width, 0), optimal)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Each looks like the next, and is drawn once for all."""
        return super().render_lines(crop.crop_size((crop.width, 1))) * crop.height
