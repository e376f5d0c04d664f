"""A key of the footer that can change what it shows. Textual's own widget for one is in a private module, and is made
anew for every change."""

from __future__ import annotations

from textual import events
from textual.widgets._footer import FooterKey

READ_SECONDS = 0.5  # a click so soon was meant for what stood there before


class ChangingKey(FooterKey):
    """A key of the footer; `set_off` dims it, and a click then rings the bell. It cannot be clicked before it was read:
    `shown_since` is by the clock of events."""

    shown_since = 0.0

    def on_mouse_down(self, event: events.MouseDown) -> None:  # type: ignore[override]
        if event.time < self.shown_since + READ_SECONDS:
            event.prevent_default()

    def set_off(self, is_off: bool) -> None:
        self._disabled = is_off
        self.set_class(is_off, "-disabled")
