"""The line at an end of what is shown of a long chat: how much is beyond it."""

from __future__ import annotations

from textual import events
from textual.message import Message
from textual.widgets import Static


class More(Static):
    """How many messages are beyond an end of the window. Pressed, it brings the next ones."""

    class Pressed(Message):
        """`direction` is -1 for earlier ones."""

        def __init__(self, direction: int) -> None:
            super().__init__()
            self.direction = direction

    def __init__(self, count: int, direction: int) -> None:
        arrow, when = ("▲", "earlier") if direction < 0 else ("▼", "later")
        super().__init__(f"{arrow} {count:,} {when} message{'s' if count > 1 else ''}", markup=False)
        self.direction = direction

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Pressed(self.direction))
