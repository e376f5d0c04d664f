"""One question with a few answers, over whatever screen asks it. Knows lines and words; what is done is the asker's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localspec.core.sanitize import clean, one_line
from localspec.tui.keys.key_names import with_keys
from localspec.tui.screens.dismissal import DismissedOnce
from localspec.tui.screens.size_notice import TooSmall

KEYS = "↑ ↓ Enter · {asking.leave} cancels"
REST_SECONDS = 0.5  # without an answer, from the key that asked, or from when the question came


@dataclass(frozen=True, slots=True)
class DialogButton:
    """An answer to choose, and the value that stands for it."""

    value: str
    words: str


class Dialog(DismissedOnce, ModalScreen[str | None]):
    """The value of the chosen reply; None: leave all as it is. `lines` may be a stranger's words. `asked_at`: when a
    key that is not Enter asked for it, by the clock of events."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Leave", key_display="Esc", priority=True, id="asking.leave")
    ]

    def __init__(
        self, title: str, lines: Sequence[str], replies: Sequence[DialogButton], *, asked_at: float | None = None
    ) -> None:
        super().__init__()
        self._title, self._lines, self._replies = title, lines, replies
        self._asked_at, self._answers_from = asked_at, 0.0

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title, dialog.border_subtitle = Content(one_line(self._title)), Content(with_keys(self, KEYS))
            with VerticalScroll(can_focus=False):
                yield Static(clean("\n".join(self._lines)), markup=False)
            yield OptionList(*(Option(Content(unbroken(one.words))) for one in self._replies), markup=False)
        yield TooSmall()

    def on_mount(self) -> None:
        now = monotonic()
        self._answers_from = max(now, (now if self._asked_at is None else self._asked_at) + REST_SECONDS)
        self.query_one(OptionList).focus()

    def on_key(self, event: events.Key) -> None:
        """Ignores an Enter that was pressed again because this took its time, or at the end of a line."""
        if event.is_printable:
            self._answers_from = event.time + REST_SECONDS
        if event.key == "enter" and event.time < self._answers_from:
            event.stop()
            event.prevent_default()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._replies[event.option_index].value)

    async def action_dismiss(self, result: str | None = None) -> None:
        self.dismiss(result)

    def on_click(self, event: events.Click) -> None:
        event.stop()


def unbroken(words: str) -> str:
    """The clean words on one line; columns stay below each other."""
    return clean(words).replace("\n", " ")
