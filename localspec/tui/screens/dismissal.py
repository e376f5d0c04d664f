"""A mixin for screens: one that is dismissed already takes no other with it.

Keys that arrive together all go to the screen that was open when they came, and a second Enter would dismiss whatever
is then on top: the screen below, or the chat itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any  # Any: the result of a screen

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette

if TYPE_CHECKING:
    from textual.screen import Screen

    Mixin = Screen[Any]
else:
    Mixin = object


class DismissedOnce(Mixin):
    def dismiss(self, result: Any = None) -> AwaitComplete:
        return super().dismiss(result) if self in self.app.screen_stack else AwaitComplete.nothing()  # type: ignore[no-untyped-call]


class Palette(DismissedOnce, CommandPalette):
    """Textual's own."""
