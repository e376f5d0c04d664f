"""All commands and keys on one page over the chat. Knows where they are declared, and no chat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

from localspec.tui.chat_list import ChatList
from localspec.tui.commands import COMMANDS
from localspec.tui.find import FindBar, Words
from localspec.tui.keymap import default_keys, spelled, twins
from localspec.tui.legend import MEANINGS
from localspec.tui.sidebar import Sidebar
from localspec.tui.too_small import TooSmall

WIDEST = 24
CLOSE = "Esc closes this page; ↑ ↓ PgUp PgDn scroll it."


class HelpScreen(ModalScreen[None]):
    """Scrolls where it does not fit."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1", "dismiss", "Close")]

    def __init__(self, keys: Iterable[tuple[str, str]], letters: Mapping[str, str]) -> None:
        """letters: what each does to the message that is pointed at."""
        super().__init__()
        self._keys, self._letters = keys, letters

    def compose(self) -> ComposeResult:
        sections = {
            "Commands": [(command.usage, command.says) for command in COMMANDS],
            "Keys": self._keys,
            "At a message, with nothing typed": self._letters.items(),
            "Among the chats": declared(ChatList, Sidebar),
            "While finding": declared(Words, FindBar),
        }
        with VerticalScroll(id="help"):
            yield Static(CLOSE, markup=False, classes="quiet")
            for title, rows in sections.items():
                yield Static(title, markup=False, classes="title")
                yield Static(table(rows), markup=False)
            yield Static("Who wrote a token, as F3 shows it", markup=False, classes="title")
            yield Static(MEANINGS, markup=False)
        yield TooSmall()


def table(rows: Iterable[tuple[str, str]]) -> Table:
    """What is said of a name stays beside it, however many lines it takes."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(max_width=WIDEST, style="bold")
    grid.add_column()
    for name, what in rows:
        grid.add_row(Text(name), Text(what))
    return grid


def declared(*widgets: type[Widget]) -> list[tuple[str, str]]:
    """Keys of widgets that need not have the focus now, as they were declared."""
    bindings = Binding.make_bindings(binding for widget in widgets for binding in widget.BINDINGS)
    rows: dict[str, list[str]] = {}
    for one in bindings:
        rows.setdefault(one.description, []).append(spelled(one.key))
    return [(" ".join(keys), what) for what, keys in rows.items()]


def keys_of(screen: Screen[None]) -> list[tuple[str, str]]:
    """What can be pressed now, as it is mapped now, of all that has an id: keys and what they do."""
    active = list(screen.active_bindings.values())
    keys: dict[str, list[str]] = {}
    for one in active:
        keys.setdefault(one.binding.id or "", []).append(one.binding.key)
    says = {one.binding.id: one.binding.description for one in active}
    declared = default_keys(binding for node in dict.fromkeys(one.node for one in active) for binding in node.BINDINGS)
    shown = [name for name in declared if name in keys]
    return [
        (" ".join(spelled(key) for key in keys[name] if key not in twins(keys[name])), says[name]) for name in shown
    ]
