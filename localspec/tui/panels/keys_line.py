"""The line of keys at the bottom: those that do something now, as many as fit. Knows no chat.

A key stands in the same columns whatever stands beside it, so that a second click does what the first did: those that
are there at times stand after those that always are, and leave their columns blank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from time import monotonic

from textual import events
from textual.app import ComposeResult
from textual.widgets import Footer

from localspec.tui.terminal.footer_key import ChangingKey

RARE = "reload"  # no columns are kept for it
MOST_USEFUL = ("send", RARE, "stop", "help", "command_palette", "new", "quit", "speed", "tokens", "spec", "chats")
PASSING = ("spec", "tokens", "stop", RARE)  # are there at times, the most often first
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
    blank: int = 0  # columns before it

    @property
    def cells(self) -> int:
        return len(self.display) + len(self.word) + (1 if self.is_letter else BLANKS)

    @property
    def rank(self) -> int:
        return MOST_USEFUL.index(self.action) if self.action in MOST_USEFUL else len(MOST_USEFUL)

    @property
    def order(self) -> int:
        """0 of what is always there; the others stand after it."""
        return PASSING.index(self.action) + 1 if self.action in PASSING else 0


class KeysLine(Footer):
    """Textual's footer, which would let the last ones run out of sight, and makes all anew whenever the focus moves.

    `word`: that of an action as things are, by its usual one; "" where it would do nothing, None where it never does on
    a screen of this width. `letters`: keys that are shown in place of all others while there are any.
    """

    def __init__(self, word: Callable[[str, str], str | None], letters: Callable[[], Sequence[Key]]) -> None:
        super().__init__(show_command_palette=False)
        self.word, self.letters = word, letters
        self._fitted, self._shown = 0, tuple[Key, ...]()
        self._usual = dict[str, Key]()  # each action's key with its usual word, wherever the focus was
        self._made: list[ChangingKey] = []
        self._since = dict[tuple[int, str, str], float]()  # a column, and the key and word that are shown there

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
        now = monotonic()
        self._since = {shown: self._since.get(shown, now) for shown in by_column(fitting)}
        for made, since in zip(self._made, self._since.values(), strict=True):
            made.shown_since = since
        async with self.batch():
            await self.remove_children(spare)
            await self.mount_all(more)

    def on_resize(self, event: events.Resize) -> None:
        if event.size.width != self._fitted:
            self.refresh(recompose=True)

    def _fitting(self) -> tuple[Key, ...]:
        self._fitted = width = self.size.width or self.app.size.width  # before it is laid out
        return tuple(spread(self.letters(), width) or in_columns(self._active(), [*self._usual.values()], width))

    def _active(self) -> list[Key]:
        """The first key of each action."""
        found = dict[str, Key]()
        for _, binding, enabled, tooltip in self.screen.active_bindings.values():
            if not binding.show or binding.action in found:
                continue
            usual, word = binding.description, self.word(binding.action, binding.description)
            does = tooltip if word == usual else ""  # it does something else now
            key = Key(binding.key, self.app.get_key_display(binding), word or "", binding.action, not enabled, does)
            found[binding.action] = key
            if word is None:
                self._usual.pop(binding.action, None)
            else:
                self._usual[binding.action] = replace(key, word=usual)
        return [key for key in found.values() if key.word]


def in_columns(active: Sequence[Key], usual: Sequence[Key], width: int) -> list[Key]:
    """Arranges the active keys that fit, each in its own columns; of two that share some, the more useful is there."""
    columns, shown = first_columns(usual, width), dict[int, Key]()
    for key in sorted(active, key=lambda key: key.rank):
        if (start := columns.get(key.action)) is None or start + key.cells > width:
            continue
        if all(start + key.cells <= first or first + one.cells <= start for first, one in shown.items()):
            shown[start] = key
    ordered = sorted(shown.items())
    ends = [0, *(start + key.cells for start, key in ordered)]
    return [replace(key, blank=start - end) for (start, key), end in zip(ordered, ends, strict=False)]


def first_columns(usual: Sequence[Key], width: int) -> dict[str, int]:
    """The column where the key of each action begins. One that is there at times, and for which there are no columns
    after all others, shares those of the first that is."""
    ranked = sorted((key for key in usual if key.action != RARE), key=lambda key: key.rank)
    kept = [key for key, end in zip(ranked, accumulate(key.cells for key in ranked), strict=True) if end <= width]
    columns, end = dict[str, int](), 0
    for key in sorted(kept, key=lambda key: key.order):
        columns[key.action], end = end, end + key.cells
    after = min((columns[action] for action in PASSING if action in columns), default=end)
    for key in usual:
        if key.action in PASSING and key.action not in columns:
            columns[key.action] = end if end + key.cells <= width else min(after, width - key.cells)
    return columns


def by_column(keys: Sequence[Key]) -> list[tuple[int, str, str]]:
    ends = accumulate(key.blank + key.cells for key in keys)
    return [(end - key.cells, key.key, key.word) for key, end in zip(keys, ends, strict=True)]


def footer_key(key: Key) -> ChangingKey:
    look = "-compact" if key.is_letter else ""
    made = ChangingKey(key.key, key.display, key.word, key.action, key.is_off, key.tooltip, look)
    made.set_reactive(ChangingKey.compact, key.is_letter)
    made.styles.margin = (0, 0, 0, key.blank)
    return made


def show_anew(made: ChangingKey, key: Key) -> None:
    made.key, made.key_display, made.description, made.action = key.key, key.display, key.word, key.action
    made.tooltip = key.tooltip or None
    made.compact = key.is_letter
    made.styles.margin = (0, 0, 0, key.blank)
    made.set_off(key.is_off)
    made.refresh(layout=True)


def letter(key: str, display: str, word: str) -> Key:
    return Key(key, f" {display}", word, "", False, "", is_letter=True)


def spread(letters: Sequence[Key], width: int) -> list[Key]:
    """The letters as far apart as the width allows."""
    wide = [replace(key, word=f"{key.word} ") for key in letters]
    return wide if sum(key.cells for key in wide) <= width else list(letters)
