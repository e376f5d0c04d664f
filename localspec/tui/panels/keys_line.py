"""The line of keys at the bottom: those that do something now, as many as fit, the most useful first. Knows no chat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from textual import events
from textual.app import ComposeResult
from textual.widgets import Footer

from localspec.tui.terminal.footer_key import ChangingKey

MOST_USEFUL = ("send", "stop", "reload", "help", "command_palette", "new", "quit", "speed", "tokens", "spec", "chats")
BLANKS = 3  # around the key, and after the word


@dataclass(frozen=True, slots=True)
class Key:
    """A key and what it does, as the line shows them."""

    key: str
    display: str
    word: str
    action: str
    is_off: bool
    tooltip: str
    is_letter: bool = False  # stands closer to the others

    @property
    def cells(self) -> int:
        return len(self.display) + len(self.word) + (1 if self.is_letter else BLANKS)

    @property
    def rank(self) -> int:
        return MOST_USEFUL.index(self.action) if self.action in MOST_USEFUL else len(MOST_USEFUL)


class KeysLine(Footer):
    """Textual's footer, which would let the last ones run out of sight, and makes all anew whenever the focus moves.

    `word`: that of an action as things are, by its usual one; "" where it would do nothing. `letters`: keys that are
    shown in place of all others while there are any.
    """

    def __init__(self, word: Callable[[str, str], str], letters: Callable[[], Sequence[Key]]) -> None:
        super().__init__(show_command_palette=False)
        self.word, self.letters = word, letters
        self._fitted, self._shown = 0, tuple[Key, ...]()
        self._made: list[ChangingKey] = []

    def compose(self) -> ComposeResult:
        return ()

    async def recompose(self) -> None:
        """Says something else where there are words already: with every question they change four times and more."""
        fitting = self._fitting()
        if fitting == self._shown or not self.is_attached or not self.display:
            return
        for made, key, shown in zip(self._made, fitting, self._shown, strict=False):
            if key != shown:
                show_anew(made, key)
        self._shown = fitting
        self._made, spare = self._made[: len(fitting)], self._made[len(fitting) :]
        more = [footer_key(key) for key in fitting[len(self._made) :]]
        self._made += more
        async with self.batch():
            await self.remove_children(spare)
            await self.mount_all(more)

    def on_resize(self, event: events.Resize) -> None:
        if event.size.width != self._fitted:
            self.refresh(recompose=True)

    def _fitting(self) -> tuple[Key, ...]:
        self._fitted = left = self.size.width or self.app.size.width  # before it is laid out
        fitting = list[Key]()
        for key in spread(self.letters(), left) or sorted(self._active().values(), key=lambda key: key.rank):
            left -= key.cells
            if left < 0:
                break
            fitting.append(key)
        return tuple(fitting)

    def _active(self) -> dict[str, Key]:
        """The first key of each action."""
        found = dict[str, Key]()
        for _, binding, enabled, tooltip in self.screen.active_bindings.values():
            if binding.show and (word := self.word(binding.action, binding.description)):
                display = self.app.get_key_display(binding)
                does = tooltip if word == binding.description else ""  # it does something else now
                key = Key(binding.key, display, word, binding.action, not enabled, does)
                found.setdefault(binding.action, key)
        return found


def footer_key(key: Key) -> ChangingKey:
    look = "-compact" if key.is_letter else ""
    made = ChangingKey(key.key, key.display, key.word, key.action, key.is_off, key.tooltip, look)
    made.set_reactive(ChangingKey.compact, key.is_letter)
    return made


def show_anew(made: ChangingKey, key: Key) -> None:
    made.key, made.key_display, made.description, made.action = key.key, key.display, key.word, key.action
    made.tooltip = key.tooltip or None
    made.compact = key.is_letter
    made.set_off(key.is_off)
    made.refresh(layout=True)


def letter(key: str, display: str, word: str) -> Key:
    return Key(key, f" {display}", word, "", False, "", is_letter=True)


def spread(letters: Sequence[Key], width: int) -> list[Key]:
    """The letters as far apart as the width allows."""
    wide = [replace(key, word=f"{key.word} ") for key in letters]
    return wide if sum(key.cells for key in wide) <= width else list(letters)
