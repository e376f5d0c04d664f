"""The drafters of the loaded model, in use or possible, over the chat; each with what it brought, as they are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localspec.core.sanitize import clean, one_line
from localspec.tui.chat.gain import gain
from localspec.tui.keys.key_names import keys_of, with_keys
from localspec.tui.keys.opener import ClosedByOpener
from localspec.tui.screens.dismissal import DismissedOnce
from localspec.tui.screens.size_notice import TooSmall

if TYPE_CHECKING:
    from localspec.runtime.prospects import Prospect

KEYS = "↑ ↓ Enter loads it · {drafters.leave} closes"
LOOKING = "Looking at the models on this machine…"
NOTHING_FITS = "No model on this machine can draft for it."
ELSEWHERE = "Find one on the hub: {models}"
ON_HUB = "hub"  # the row that opens the models screen


class DraftersScreen(DismissedOnce, ClosedByOpener, ModalScreen["Prospect | str | None"]):
    """The prospect to load; ON_HUB for the models screen; None: leave all as it is.

    The row of `in_use`, the --draft of what drafts now, is highlighted, and none where that is not among them. Text
    typed here is a question: it closes the page and goes to `write`.
    """

    OPENER = "spec"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close", key_display="Esc", priority=True, id="drafters.leave")
    ]

    def __init__(self, title: str, now: str, write: Callable[[str], object], in_use: str | None = None) -> None:
        """`now`: what drafts at present, or why nothing does."""
        super().__init__()
        self._title, self._now, self._write, self._in_use = title, now, write, in_use
        self._found: list[Prospect] = []
        self._at_first: int | None = None  # the row that is highlighted until the user moves
        self._written = False
        self._list = OptionList(markup=False)
        self._state = Static(LOOKING, markup=False, classes="quiet")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title, dialog.border_subtitle = Content(one_line(self._title)), Content(with_keys(self, KEYS))
            yield Static(clean(self._now), markup=False)
            yield self._list
            yield self._state
        yield TooSmall()

    def on_mount(self) -> None:
        self.show_rows()
        self._list.focus()

    def add(self, found: Prospect) -> None:
        """One more was found."""
        self._found.append(found)
        self.show_rows()

    def show_rows(self) -> None:
        """What was found, and last the row that leads to the hub."""
        index = self._list.highlighted
        self._list.clear_options()
        self._list.add_options(Option(row(one)) for one in self._found)
        self._list.add_option(Option(Content(with_keys(self, ELSEWHERE)), id=ON_HUB))
        moved = index not in (None, self._at_first, len(self._found) - 1)
        drafts = [one.draft for one in self._found]
        nothing_else = 0 if self._in_use is None else None
        self._at_first = drafts.index(self._in_use) if self._in_use in drafts else nothing_else
        self._list.highlighted = index if moved else self._at_first

    def end(self, note: str) -> None:
        """All have been looked at; or the fault that ended it."""
        self._state.update(one_line(note if any(one.suits for one in self._found) else f"{NOTHING_FITS} {note}"))

    async def on_key(self, event: events.Key) -> None:
        """Keys that were typed before the page was gone still come here: an Enter among them chooses nothing."""
        if event.is_printable and event.character and event.key not in keys_of(self, self.OPENER):
            self.write_on(event, event.character)
        elif self._written and event.key == "enter":
            event.stop()
            event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        self.write_on(event, event.text)

    def write_on(self, event: events.Event, text: str) -> None:
        event.stop()
        self.dismiss(None)
        self._written = True
        self._write(text)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(ON_HUB if event.option_id == ON_HUB else self._found[event.option_index])

    async def action_dismiss(self, result: Prospect | str | None = None) -> None:
        self.dismiss(result)


def row(one: Prospect) -> Content:
    """What it brought here, its name, and whether it suits."""
    tone = "" if one.suits else "$foreground-muted"
    accepted = f", {100 * one.acceptance:.0f} % accepted" if one.acceptance is not None else ""
    name, detail = (one_line(one.name), f"bold {tone}".strip()), (f"  {one_line(one.detail)}{accepted}", tone)
    measured = " measured  " if one.speedup is not None else "  "
    return Content.assemble(gain(one.speedup, None), measured, name, detail)
