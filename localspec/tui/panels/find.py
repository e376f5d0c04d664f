"""A line above the prompt that finds words in the open chat. Receives the texts; knows no messages."""

from __future__ import annotations

import asyncio
from asyncio import Lock, TimerHandle
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from localspec.core.sanitize import one_line
from localspec.tui.chat.word_matches import SearchedMessage, WordFinder, WordHit, WordHits
from localspec.tui.keys.key_names import with_keys
from localspec.tui.panels.field import LONGEST, Field
from localspec.tui.terminal.bound_keys import runs_binding
from localspec.tui.terminal.timer import once

TYPING_SECONDS = 0.1  # the search begins when the fingers rest so long
NAME_CHARACTERS = 24
FROM_TOP, FROM_END = " · from the top", " · from the end"
KEYS = " · {find.on} next {find.back} back"
OPENS = " · {find.file} opens it"


class Words(Field):
    """Enter goes on to the next."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Next", show=False, id="find.submit")]


class Count(Static):
    """Says which of the hits is shown. It has the focus while they are walked through: there, letters are keys, and any
    other is typed after the words. `in_file`: the hit is in one, which can be opened."""

    in_file = False

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "walk(1)", "Next, after Enter", show=False, id="find.on"),
        Binding("N", "walk(-1)", "Previous, after Enter", show=False, id="find.back"),
        Binding("enter", "walk(1)", show=False),
        Binding("right", "look", "Read the file with the hit, after Enter", show=False, id="find.file"),
    ]

    class Looked(Message):
        """The file with the hit is to be shown."""

    class Walked(Message):
        """The next hit is to be shown, or the one before."""

        def __init__(self, direction: int) -> None:
            super().__init__()
            self.direction = direction

    class Typed(Message):
        """A letter that is no key here; "" takes the last one back."""

        def __init__(self, letter: str) -> None:
            super().__init__()
            self.letter = letter

    def __init__(self) -> None:
        super().__init__("", markup=False, id="find-count")
        self.can_focus = True

    def action_walk(self, direction: int) -> None:
        self.post_message(self.Walked(direction))

    def action_look(self) -> None:
        self.post_message(self.Looked())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.in_file if action == "look" else super().check_action(action, parameters)

    async def on_key(self, event: events.Key) -> None:
        if await runs_binding(self, event.key):
            event.stop()
        elif event.key == "backspace" or (event.is_printable and event.character):
            event.stop()
            self.post_message(self.Typed("" if event.key == "backspace" else event.character or ""))


class FindBar(Horizontal):
    """`read` gives every message of the branch, first to last."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,shift+enter", "step(-1)", "Previous", show=False, id="find.previous"),
        Binding("down", "step(1)", "Next", show=False, id="find.next"),
    ]

    class Sought(Message):
        """Mark these words."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    class Reached(Message):
        """Show this hit."""

        def __init__(self, hit: WordHit) -> None:
            super().__init__()
            self.hit = hit

    class Opened(Message):
        """Show the file with this hit."""

        def __init__(self, hit: WordHit) -> None:
            super().__init__()
            self.hit = hit

    class Left(Message):
        """The user is done here."""

    def __init__(self, read: Callable[[], Sequence[SearchedMessage]]) -> None:
        super().__init__()
        self.read = read
        self.words = Words(
            placeholder="Find in this chat…",
            compact=True,
            max_length=LONGEST,
            select_on_focus=False,  # letters that come while the focus moves are written on
            id="find-words",
        )
        self.count = Count()
        self.found, self.index = WordHits(""), -1  # the hit that is shown; -1 before the first
        self.display = False
        self._finder, self._finding = WordFinder(), Lock()
        self._rest: TimerHandle | None = None

    def compose(self) -> ComposeResult:
        yield Static("Find ", markup=False, id="find-label")
        yield self.words
        yield self.count

    def open(self) -> None:
        self.display = True
        self.words.focus()
        self.words.action_select_all()
        self._look()

    async def open_at(self, words: str, message: int) -> None:
        """The first hit in this message is shown, and the next key goes on from there."""
        self.display = True
        with self.words.prevent(Input.Changed):
            self.words.value = words[:LONGEST]
        self.count.focus()
        async with self._finding:
            await self._find()
            self.index = -1 if (first := self.found.first_in(message)) is None else first
            self._show("")

    def leave(self) -> None:
        self.close()
        self.post_message(self.Left())

    def close(self) -> None:
        self.display, self.found, self.index = False, WordHits(""), -1
        self._finder.forget()

    # --- finding

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self._rest is not None:
            self._rest.cancel()
        self._rest = once(self, TYPING_SECONDS, self._look)

    def _look(self) -> None:
        self.run_worker(self._count(), group="find", exclusive=True)

    async def _count(self) -> None:
        async with self._finding:
            if self.words.value != self.found.words:
                self.index = -1
            await self._find()
            self._tell("")

    async def _find(self) -> None:
        """What there is now, of the words as they are now; both may have changed since the last time."""
        words = self.words.value
        found = await asyncio.to_thread(self._finder.find, self.read(), words)
        if self.display:  # else it was closed meanwhile
            self.found, self.index = found, min(self.index, len(found) - 1)
            self.post_message(self.Sought(words))

    # --- walking

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_step(1)
        if event.value.strip():
            self.count.focus()

    def on_count_walked(self, message: Count.Walked) -> None:
        message.stop()
        self.action_step(message.direction)

    def on_count_looked(self, message: Count.Looked) -> None:
        message.stop()
        if self.index >= 0:
            self.post_message(self.Opened(self.found.at(self.index)))

    def on_count_typed(self, message: Count.Typed) -> None:
        """The words are written on."""
        message.stop()
        self.words.focus()
        value = self.words.value
        self.words.value = value + message.letter if message.letter else value[:-1]
        self.words.cursor_position = len(self.words.value)

    def action_step(self, direction: int) -> None:
        self.run_worker(self._step(direction), group="steps")

    async def _step(self, direction: int) -> None:
        async with self._finding:
            if self.words.value != self.found.words:
                self.index = -1
            await self._find()
            before, total = self.index, len(self.found)
            if total:
                self.index = (max(before, 0) - 1 if direction < 0 else before + 1) % total
            wrapped = total and before >= 0 and (self.index <= before if direction > 0 else self.index >= before)
            self._show((FROM_TOP if direction > 0 else FROM_END) if wrapped else "")

    def _show(self, how: str) -> None:
        if self.index >= 0:
            self.post_message(self.Reached(self.found.at(self.index)))
        self._tell(how)

    def _tell(self, how: str) -> None:
        """How many there are, which of them is shown, and in which file that is."""
        file = one_line(self.found.at(self.index).file)[-NAME_CHARACTERS:] if self.index >= 0 else ""
        self.count.in_file = bool(file)
        if not self.display or not self.words.value.strip():
            self.count.update("")
        elif self.index < 0:
            self.count.update(f"{len(self.found):,} found")
        else:
            where = f"{self.index + 1:,} of {len(self.found):,}{f' · in {file}' if file else ''}"
            keys = with_keys(self, KEYS + (OPENS if file else "")) if self.count.has_focus and not how else ""
            self.count.update(f"{where}{how}{keys}")
