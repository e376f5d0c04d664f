"""A container that scrolls, whose subclasses know whether it follows its end and when it is laid out.

Textual has no public name for either; it moves the position while it lays out, as if the user had scrolled.
"""

from __future__ import annotations

from textual.containers import VerticalScroll
from textual.geometry import Size

from localspec.tui.markdown.layout import GrowingScroll


class AnchoredScroll(GrowingScroll, VerticalScroll):
    """A scroll view that may follow its end. `is_settling` while Textual fits the position to a new size."""

    is_settling = False

    @property
    def follows(self) -> bool:
        """Its end is what stays in sight, however much is added."""
        return self._anchored and not self._anchor_released

    def may_follow(self) -> bool:
        """Whether to follow the end again when the user has scrolled there."""
        return True

    def _check_anchor(self) -> None:
        if self.may_follow():
            super()._check_anchor()

    def _scroll_update(self, virtual_size: Size) -> None:
        self.is_settling = True
        super()._scroll_update(virtual_size)
        self.is_settling = False
