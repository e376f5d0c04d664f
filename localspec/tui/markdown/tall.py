"""A widget whose height depends on its width alone, as that of text does.

Textual asks for it with the height of what stands around it, which grows with every line of an answer, and so would lay
out again all that stands above the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Size
from textual.widget import Widget

if TYPE_CHECKING:
    Base = Widget
else:
    Base = object  # a mixin: Textual styles a widget as its first base that is one


class Tall(Base):
    """To be named before the widget's own class."""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return super().get_content_height(Size(container.width, 0), viewport, width)

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:  # noqa: ARG002
        """Textual lays out the screen again for every widget that has just been given another size."""
        return super()._size_updated(size, virtual_size, container_size, layout=False)
