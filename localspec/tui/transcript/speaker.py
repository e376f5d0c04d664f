"""The line above a message: who says it, which of its versions it is, when, and how it is shown. Knows no messages."""

from __future__ import annotations

from datetime import date

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.selection import Selection
from textual.widget import Widget

from localspec.history.text.lists import when
from localspec.tui.keys.key_names import with_keys
from localspec.tui.markdown.layout import Tall
from localspec.tui.transcript.token_view import View

POINTED = "▶ "
GAP = "  "
VERSIONS = "Version {number} of {total}: {{msg.prev}} goes to the message, {{msg.older}} {{msg.newer}} to the others."
QUIET = "not bold $foreground-muted"


class Speaker(Tall, Widget):
    """A message's first line: `version` is its number and how many there are; `at` is the time as the history has it.

    A mark stands before the name of a selected message. A click on the switch is sent to the message.
    """

    class Switched(Message):
        """Sent when the switch is clicked: show text instead of tokens, or tokens instead of text."""

    def __init__(self, name: str, version: tuple[int, int] = (1, 1), at: str = "") -> None:
        super().__init__(classes="speaker")
        self._who, self._version, self._at = name, version, clock(at)
        self._pointed = False
        self._view: View | None = None

    def on_mount(self) -> None:
        number, total = self._version
        if total > 1:
            self.tooltip = Content(with_keys(self, VERSIONS.format(number=number, total=total)))

    def rename(self, name: str) -> None:
        self._who = name
        self.refresh()

    def point(self, pointed: bool) -> None:
        self._pointed = pointed
        self.set_class(pointed, "-pointed")
        self.refresh()

    def offer(self, view: View | None) -> None:
        """Shows the switch with this view as the current one; None hides it."""
        if view != self._view:
            self._view = view
            self.refresh()

    @property
    def name_line(self) -> str:
        return f"{POINTED if self._pointed else ''}{self._who}"

    @property
    def remarks(self) -> str:
        number, total = self._version
        version = f"‹{number}/{total}›" if total > 1 else ""
        return GAP.join(part for part in (version, self._at, self.switch) if part)

    @property
    def switch(self) -> str:
        """The switch between the two views, the current one in brackets."""
        if self._view is None:
            return ""
        return "[md] tok" if self._view == "markdown" else "md [tok]"

    def render(self) -> Content:
        remarks = Content.styled(self.remarks, QUIET)
        columns = max(0, self.content_size.width - remarks.cell_length)
        return Content(self.name_line).truncate(columns, ellipsis=True, pad=True) + remarks

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The name alone: what stands at the right is no part of the message."""
        return selection.extract(self.name_line), "\n"

    def on_click(self, event: events.Click) -> None:
        if self.switch and event.x >= self.content_size.width - cell_len(self.switch):
            event.stop()
            self.post_message(self.Switched())


def clock(at: str) -> str:
    """The time by the user's clock; with the date if it was another day."""
    return when(at).removeprefix(f"{date.today()} ") if at else ""
