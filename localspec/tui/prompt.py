"""Where the user writes: Enter sends, several keys break the line, a slash brings up what can follow it.

Knows nothing about chats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from localspec.tui.commands import Offer
from localspec.tui.completion import Completion

PLACEHOLDER = "Ask anything… (/ for commands)"
COLLIDING = {"pageup", "pagedown", "f6", "f7", "ctrl+c,super+c"}


class Prompt(TextArea, inherit_bindings=False):
    """A text area that grows from one line to ten and remembers what was sent last."""

    ALLOW_MAXIMIZE = False  # the palette would offer it
    BINDINGS: ClassVar[list[BindingType]] = [
        *(b for b in TextArea.BINDINGS if not (isinstance(b, Binding) and b.key in COLLIDING)),
        Binding("enter", "send", "Send", key_display="Enter", priority=True, id="send"),
        Binding("ctrl+j,alt+enter,shift+enter", "newline", "New line", key_display="^J", priority=True, id="newline"),
        Binding("tab", "complete", "Complete", show=False, id="complete"),
    ]

    class Sent(Message):
        """Enter was pressed. The text has left the prompt; a screen that cannot take it gives it back."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__(compact=True, highlight_cursor_line=False, placeholder=PLACEHOLDER, id="prompt")
        self.last = ""
        self.completion = Completion()  # the screen decides where it stands

        self.claims: Callable[[str], bool] = lambda _: False  # a character on an empty prompt; True: it is not typed

    def on_text_area_changed(self) -> None:
        self.completion.follow(self.text)

    def on_key(self, event: events.Key) -> None:
        """Runs before the text area's own."""
        if not self.text and event.character and self.claims(event.character):
            event.stop()
            event.prevent_default()

    def take(self) -> str:
        """The text, which is remembered and cleared."""
        self.last = self.text.strip()
        self.text = ""
        return self.last

    def give(self, text: str) -> None:
        """Put a text back, before what has been written since."""
        self.text = f"{text}\n{self.text}" if self.text else text
        self.move_cursor(self.document.end)

    # A priority binding runs ahead of letters that were typed before it and still wait in this widget's queue.
    # call_later puts the key back in line, so that a burst of typing arrives in the order it was typed.

    def action_send(self) -> None:
        self.call_later(self.send)

    def action_newline(self) -> None:
        self.call_later(self.break_line)

    def send(self) -> None:
        """The text, or in its place the command that is chosen, once nothing is missing in it."""
        self.completion.follow(self.text)  # what was typed last may not have been noticed yet
        if (chosen := self.completion.chosen) is not None:
            self.put(chosen)
            if not chosen.runs:
                return
        if self.text.endswith("\\") and self.cursor_location == self.document.end:
            self.action_delete_left()
            self.break_line()
        elif self.text.strip():
            self.post_message(self.Sent(self.take()))

    def break_line(self) -> None:
        self.insert("\n")
        self.scroll_cursor_visible()

    def put(self, offer: Offer) -> None:
        self.replace(offer.text, self.document.start, self.document.end)
        self.move_cursor(self.document.end)

    def action_complete(self) -> None:
        self.completion.follow(self.text)
        if (offer := self.completion.best) is None:
            raise SkipAction
        self.put(offer)

    def action_cursor_up(self, select: bool = False) -> None:
        if not select and self.completion.move(-1):
            return
        if self.text or not self.last:
            super().action_cursor_up(select)
        else:
            self.give(self.last)

    def action_cursor_down(self, select: bool = False) -> None:
        if select or not self.completion.move(1):
            super().action_cursor_down(select)
