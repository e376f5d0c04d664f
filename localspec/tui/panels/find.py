"""A line above the prompt that finds words in the open chat. Receives the texts; knows no messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from localspec.tui.panels.field import LONGEST, Field


class Words(Field):
    """Enter goes on to the next."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Next", show=False, id="find.submit")]


def matching(texts: Sequence[str], words: str) -> list[int]:
    """The indices of the texts that contain the words, in capitals or not."""
    sought = words.casefold()
    return [place for place, text in enumerate(texts) if sought and sought in text.casefold()]


def after(places: Sequence[int], place: int | None) -> int:
    """The next one; behind the last comes the first."""
    return next((each for each in places if place is None or each > place), places[0])


def before(places: Sequence[int], place: int | None) -> int:
    return next((each for each in reversed(places) if place is None or each < place), places[-1])


class FindBar(Horizontal):
    """`read` gives every message of the branch, first to last."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,shift+enter", "step(-1)", "Previous", show=False, id="find.previous"),
        Binding("down", "step(1)", "Next", show=False, id="find.next"),
    ]

    class Found(Message):
        """Show the message with this index."""

        def __init__(self, place: int) -> None:
            super().__init__()
            self.place = place

    class Left(Message):
        """The user is done here."""

    def __init__(self, read: Callable[[], Sequence[str]]) -> None:
        super().__init__()
        self.read = read
        self.words = Words(placeholder="Find in this chat…", compact=True, max_length=LONGEST, id="find-words")
        self.count = Static("", markup=False, id="find-count")
        self.place: int | None = None
        self.display = False

    def compose(self) -> ComposeResult:
        yield Static("Find ", markup=False, id="find-label")
        yield self.words
        yield self.count

    def open(self) -> None:
        self.display = True
        self.tell()
        self.words.focus()

    def leave(self) -> None:
        self.display, self.place = False, None
        self.post_message(self.Left())

    def tell(self) -> None:
        """How many there are, and which of them is shown."""
        places = matching(self.read(), self.words.value)
        shown = f"{places.index(self.place) + 1} of {len(places)}" if self.place in places else f"{len(places)} found"
        self.count.update(shown if self.words.value else "")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.tell()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_step(1)

    def action_step(self, direction: int) -> None:
        if places := matching(self.read(), self.words.value):
            self.place = before(places, self.place) if direction < 0 else after(places, self.place)
            self.post_message(self.Found(self.place))
        self.tell()
