"""The colour themes over the chat: each is shown as one moves to it. Knows names, and no file of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from localspec.tui.keys.key_names import with_keys
from localspec.tui.screens.dismissal import DismissedOnce
from localspec.tui.screens.size_notice import TooSmall

KEYS = "Enter chooses · {themes.leave} cancels"


class ThemePicker(DismissedOnce, ModalScreen[str | None]):
    """The name of the chosen theme; None: the one before, which then is there again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Cancel", key_display="Esc", priority=True, id="themes.leave")
    ]

    def __init__(self, names: Sequence[str], now: str) -> None:
        super().__init__()
        self._names, self._before = names, now

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title, dialog.border_subtitle = "Theme", Content(with_keys(self, KEYS))
            yield OptionList(*(Option(Content(name)) for name in self._names), markup=False)
        yield TooSmall()

    def on_mount(self) -> None:
        names = self.query_one(OptionList)
        names.highlighted = self._names.index(self._before) if self._before in self._names else 0
        names.focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self.app.theme = self._names[event.option_index]

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._names[event.option_index])

    async def action_dismiss(self, result: str | None = None) -> None:
        self.app.theme = self._before
        self.dismiss(result)
