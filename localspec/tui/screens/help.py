"""What stands on the screen, all commands and keys, on one page over the chat. Knows where they are declared, and no
chat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar  # Any: the result of a screen

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from localspec.tui.chat.explained import WHAT_YOU_SEE
from localspec.tui.control.commands import COMMANDS
from localspec.tui.control.letters import LETTERS
from localspec.tui.keys.key_names import changed, named, rows, with_keys
from localspec.tui.keys.keymap import default_keys, spelled, twins
from localspec.tui.keys.models_keys import DISK_KEYS, DOWNLOAD_KEYS, HUB_KEYS, SCREEN_KEYS
from localspec.tui.keys.opener import ClosedByOpener
from localspec.tui.panels.chat_list import ChatList
from localspec.tui.panels.find import Count, FindBar, Words
from localspec.tui.panels.pills import Pills
from localspec.tui.panels.sidebar import Sidebar
from localspec.tui.screens.attachment import AttachedScreen
from localspec.tui.screens.compare import CompareScreen
from localspec.tui.screens.dialog import Dialog
from localspec.tui.screens.dismissal import DismissedOnce
from localspec.tui.screens.drafters import DraftersScreen
from localspec.tui.screens.link import LinkScreen
from localspec.tui.screens.overflow import Overflow
from localspec.tui.screens.sampling_form import SamplingForm
from localspec.tui.screens.size_notice import TooSmall
from localspec.tui.screens.theme_picker import ThemePicker
from localspec.tui.screens.tree import TREE_KEYS
from localspec.tui.transcript.legend import meanings

OVER: dict[str, list[BindingType]] = {
    "a comparison": CompareScreen.BINDINGS,
    "the models": SCREEN_KEYS,
    "on disk": DISK_KEYS,
    "the hub": HUB_KEYS,
    "downloads": DOWNLOAD_KEYS,
    "a question": Dialog.BINDINGS,
    "sampling": SamplingForm.BINDINGS,
    "a full context": Overflow.BINDINGS,
    "a link": LinkScreen.BINDINGS,
    "what drafts": DraftersScreen.BINDINGS,
    "the themes": ThemePicker.BINDINGS,
    "a file": AttachedScreen.BINDINGS,
    "the branches": TREE_KEYS,
}
WIDEST = 24
LEAVING = ("suspend", "editor")  # they leave the terminal to another program, which a chat below the shell's cannot
CHANGED = "Keys that your settings change"
NAMES = "Names of all keys, for [keymap] in config.toml"
SEEN = "What you see"
WHO = "Who wrote a token, as {tokens} shows it"
LETTERS_AT = "At a message ({msg.prev} goes to one), with an empty prompt"
CLOSE = "{help.close} closes this page; ↑ ↓ PgUp PgDn scroll it."


class HelpScreen(DismissedOnce, ClosedByOpener, ModalScreen[None]):
    """Scrolls where it does not fit."""

    OPENER = "help"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Close", id="help.close")]

    def __init__(self, keys: Iterable[tuple[str, str]], *, is_chats: bool = False) -> None:
        """`is_chats`: it begins with what a chat shows."""
        super().__init__()
        self._keys, self._is_chats = keys, is_chats

    def compose(self) -> ComposeResult:
        over = [(keys, f"{where}: {does}") for where, one in OVER.items() for keys, does in rows(self, one)]
        own = changed(self)
        sections: dict[str, Iterable[tuple[str, str]]] = {
            **({CHANGED: own} if own else {}),
            "Keys": self._keys,
            "Commands": [(command.usage, command.says) for command in COMMANDS.values()],
            with_keys(self, LETTERS_AT): rows(self, LETTERS),
            "At what is attached": rows(self, Pills.BINDINGS),
            "In the chat list": rows(self, (*ChatList.BINDINGS, *Sidebar.BINDINGS)),
            "While finding": rows(self, (*Words.BINDINGS, *FindBar.BINDINGS, *Count.BINDINGS)),
            "In dialogs": over,
        }
        with VerticalScroll(id="help"):
            yield Static(with_keys(self, CLOSE), markup=False, classes="quiet")
            if self._is_chats:
                yield Static(SEEN, markup=False, classes="title")
                yield Static(table(WHAT_YOU_SEE), markup=False)
                yield Static(with_keys(self, WHO), markup=False, classes="title")
                yield Static(meanings(self), markup=False)
            for title, listed in sections.items():
                yield Static(title, markup=False, classes="title")
                yield Static(table(listed), markup=False)
            yield Static(NAMES, markup=False, classes="title")
            yield Static(named(self), markup=False, classes="quiet")
        yield TooSmall()


def table(rows: Iterable[tuple[str, str]]) -> Table:
    """Lays names and texts out in two columns; a long text wraps within its own."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(max_width=WIDEST, style="bold")
    grid.add_column()
    for name, what in rows:
        grid.add_row(Text(name), Text(what))
    return grid


def active_keys(screen: Screen[Any]) -> list[tuple[str, str]]:
    """The keys that can be pressed now, as mapped now, of all bindings with an id, and what they do."""
    active = list(screen.active_bindings.values())
    keys: dict[str, list[str]] = {}
    for one in active:
        keys.setdefault(one.binding.id or "", []).append(one.binding.key)
    says = {one.binding.id: one.tooltip or one.binding.description for one in active}
    declared = default_keys(binding for node in dict.fromkeys(one.node for one in active) for binding in node.BINDINGS)
    hidden = LEAVING if screen.app.is_inline else ()
    shown = [name for name in declared if name in keys and name not in hidden]
    return [
        (" ".join(spelled(key) for key in keys[name] if key not in twins(keys[name])), says[name]) for name in shown
    ]
