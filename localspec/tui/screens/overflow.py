"""Asks what to do about a question that no longer fits into the context with all turns before it.

Knows a sentence and a number; the screen does what is chosen.
"""

from __future__ import annotations

from asyncio import TimerHandle
from functools import partial
from time import monotonic
from typing import ClassVar, Literal

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localspec.core.sanitize import clean, one_line
from localspec.tui.keys.key_names import keys_of, shown
from localspec.tui.screens.dismissal import DismissedOnce
from localspec.tui.screens.size_notice import TooSmall
from localspec.tui.terminal.timer import once

OverflowChoice = Literal["stop", "once", "drop-oldest", "new", "model"]
KEYS = "↑ ↓ Enter, or a key."
REST_SECONDS = 1.0
ALONE_SECONDS = 0.5  # after a letter, until it is no beginning of a word
CHOICES: dict[str, OverflowChoice] = {
    "overflow.stop": "stop",
    "overflow.once": "once",
    "overflow.drop": "drop-oldest",
    "overflow.new": "new",
    "overflow.model": "model",
}


class Overflow(DismissedOnce, ModalScreen[OverflowChoice | None]):
    """The choice, or nothing: then the question is left unanswered, and the next one asks again. `own`: the chat's own
    model, where that is another and holds the question."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Leave", show=False, id="overflow.leave"),
        Binding("s", "choose('stop')", "Stop", show=False, id="overflow.stop"),
        Binding("o", "choose('once')", "Drop the oldest turns once", show=False, id="overflow.once"),
        Binding("d", "choose('drop-oldest')", "Drop the oldest turns", show=False, id="overflow.drop"),
        Binding("n", "choose('new')", "New chat", show=False, id="overflow.new"),
        Binding("m", "choose('model')", "The chat's own model", show=False, id="overflow.model"),
    ]

    def __init__(self, sentence: str, turns: int, *, own: str = "") -> None:
        super().__init__()
        self._sentence, self._turns, self._own = sentence, turns, own
        self._last_key, self._listens = 0.0, False
        self._alone: TimerHandle | None = None

    def compose(self) -> ComposeResult:
        dropping = f"Drop {oldest(self._turns)}, and don't ask again in this chat"
        loading = f"Load {one_line(self._own)}, this chat's own model, which holds all of it"
        own = [option(shown(self, "overflow.model"), loading, "model")] if self._own else []
        with Vertical():
            yield Static(clean(self._sentence), markup=False)
            yield OptionList(
                option(shown(self, "overflow.leave"), "Cancel"),
                *own,
                option(shown(self, "overflow.once"), f"Drop {oldest(self._turns)}", "once"),
                option(shown(self, "overflow.drop"), dropping, "drop-oldest"),
                option(shown(self, "overflow.new"), "New chat: ask it there", "new"),
                option(shown(self, "overflow.stop"), "Cancel, and don't ask again in this chat", "stop"),
                markup=False,
            )
            yield Static(KEYS, markup=False, classes="keys")
        yield TooSmall()

    def on_mount(self) -> None:
        self._last_key = monotonic()

    def on_key(self, event: events.Key) -> None:
        """Ignores keys of a user who was typing the next question when this appeared, or goes on typing it: a letter
        that another key follows at once is no answer."""
        if self._alone is not None:
            self._alone.cancel()
        self._listens |= event.time - self._last_key >= REST_SECONDS
        self._last_key = max(event.time, self._last_key)  # keys that waited are older than the screen
        if not self._listens:
            event.stop()
        elif event.is_printable:
            event.stop()
            self._listens = False
            self._alone = once(self, ALONE_SECONDS, partial(self.take_letter, event.key))

    def take_letter(self, key: str) -> None:
        """The letter was a key."""
        if choice := next((choice for name, choice in CHOICES.items() if key in keys_of(self, name)), None):
            self.action_choose(choice)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_choose(event.option_id)

    def action_choose(self, choice: OverflowChoice | str | None) -> None:
        if choice != "model" or self._own:
            self.dismiss(choice)

    async def action_dismiss(self, result: OverflowChoice | None = None) -> None:
        self.dismiss(result)

    def on_click(self, event: events.Click) -> None:
        event.stop()


def oldest(turns: int) -> str:
    return f"the oldest {turns} turns" if turns > 1 else "the oldest turn"


def option(key: str, words: str, choice: OverflowChoice | None = None) -> Option:
    return Option(Content.assemble((f"{key}  ", "bold"), words), id=choice)
