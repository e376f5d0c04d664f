"""The line of keys at the bottom: as many as fit, the most useful first."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

MOST_USEFUL = ("send", "stop", "reload", "help", "command_palette", "new", "quit", "speed", "tokens", "spec", "chats")
BLANKS = 3  # around the key, and behind the word


class KeysLine(Footer):
    """Textual's footer, which would let the last ones run out of sight."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)
        self._fitted = 0

    def compose(self) -> ComposeResult:
        self._fitted = left = self.size.width or self.app.size.width  # before it has a place
        for key in sorted((key for key in super().compose() if isinstance(key, FooterKey)), key=rank):
            left -= len(key.key_display) + len(key.description) + BLANKS
            if left < 0:
                return
            yield key

    def on_resize(self, event: events.Resize) -> None:
        if event.size.width != self._fitted:
            self.refresh(recompose=True)


def rank(key: FooterKey) -> int:
    return MOST_USEFUL.index(key.action) if key.action in MOST_USEFUL else len(MOST_USEFUL)
