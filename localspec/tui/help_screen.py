"""All commands and keys on one page over the chat. Knows their names and no chat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from localspec.tui.commands import COMMANDS

WIDEST = 22
CLOSE = "Esc closes this page; ↑ ↓ PgUp PgDn scroll it."


class HelpScreen(ModalScreen[None]):
    """Scrolls where it does not fit."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1", "dismiss", "Close")]

    def __init__(self, keys: Iterable[tuple[str, str]]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        commands = [(command.usage, command.says) for command in COMMANDS]
        pages = [("Commands", commands), ("Keys", self._keys)]
        content = Content("\n\n").join(part(title, rows) for title, rows in pages)
        with VerticalScroll(id="help"):
            yield Static(Content.assemble((CLOSE, "$text-muted"), "\n\n", content), markup=False)


def part(title: str, rows: Iterable[tuple[str, str]]) -> Content:
    """A name longer than its column has a line of its own."""
    lines = [Content.styled(title, "bold $text-accent")]
    for name, what in rows:
        gap = "\n" + " " * (WIDEST + 2) if len(name) > WIDEST else " " * (WIDEST + 2 - len(name))
        lines.append(Content.assemble((name, "bold"), gap, what))
    return Content("\n").join(lines)


def keys_of(screen: Screen[None]) -> list[tuple[str, str]]:
    """What can be pressed now, as it is mapped now, of all that has an id: keys and what they do."""
    found: dict[str, tuple[list[str], str]] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if binding.id:
            keys, _ = found.setdefault(binding.id, ([], binding.description))
            keys.append(screen.app.get_key_display(binding))
    return [(" ".join(dict.fromkeys(keys)), what) for keys, what in found.values()]
