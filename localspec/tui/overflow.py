"""Asks what to do about a question that no longer fits into the context with all that was said before it.

Knows a sentence and a number; the screen does what is chosen.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localspec.sanitize import clean
from localspec.tui.too_small import TooSmall

Choice = Literal["stop", "drop-oldest", "new"]


class Overflow(ModalScreen[Choice | None]):
    """The choice, or nothing: then the question is left unanswered, and the next one asks again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Leave", show=False),
        Binding("s", "choose('stop')", "Stop", show=False),
        Binding("d", "choose('drop-oldest')", "Drop", show=False),
        Binding("n", "choose('new')", "New", show=False),
    ]

    def __init__(self, sentence: str, turns: int) -> None:
        super().__init__()
        self._sentence, self._turns = sentence, turns

    def compose(self) -> ComposeResult:
        oldest = f"the oldest {self._turns} turns" if self._turns > 1 else "the oldest turn"
        with Vertical():
            yield Static(clean(self._sentence), markup=False)
            yield OptionList(
                option("s", "Stop here: the question stays unanswered", "stop"),
                option("d", f"Drop {oldest}: not told to the model any more", "drop-oldest"),
                option("n", "New chat: ask it there", "new"),
                markup=False,
            )
            yield Static("↑ ↓ Enter, or a letter. Esc: unanswered, and ask again.", markup=False, classes="keys")
        yield TooSmall()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_choose(str(event.option_id))

    def action_choose(self, choice: Choice | str) -> None:
        self.dismiss(choice)  # type: ignore[arg-type]

    async def action_dismiss(self, result: Choice | None = None) -> None:
        self.dismiss(result)

    def on_click(self, event: events.Click) -> None:
        event.stop()


def option(letter: str, words: str, choice: Choice) -> Option:
    return Option(Content.assemble((f"{letter}  ", "bold"), words), id=choice)
