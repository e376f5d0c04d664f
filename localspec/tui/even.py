"""A container without lines above or below it: each of its lines looks like the next, and is drawn once for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

if TYPE_CHECKING:
    Base = Widget
else:
    Base = object  # a mixin: Textual styles a widget as its first base that is one


class Even(Base):
    """To be named before the widget's own class."""

    def render_lines(self, crop: Region) -> list[Strip]:
        return super().render_lines(crop.crop_size((crop.width, 1))) * crop.height
