"""The list in the sidebar: chats under the day they were used last, or what a search found in them. Reads records."""

from __future__ import annotations

import re
from asyncio import TimerHandle
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Key
from textual.message import Message
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from localspec.core.sanitize import clean
from localspec.history import SearchHit, StoredChat
from localspec.history.records import TextPart
from localspec.history.text.lists import by_chat, speaker, title
from localspec.tui.keys.key_names import keys_of
from localspec.tui.terminal.timer import once
from localspec.tui.themes import QUIET

PINNED, TODAY, YESTERDAY, WEEK, OLDER = "Pinned", "Today", "Yesterday", "Previous 7 days", "Older"
RUNNING, MARKED = "▸", "✓"
MATCH = "bold underline"
REST_SECONDS = 0.5  # after a letter that is a key, until it is no beginning of a word
CHANGES = ("pin", "rename", "mark", "delete")
BEFORE = 10  # letters before a match, so that the match itself is in sight


class ChatRow(Option):
    """A chat with its whole title, or a message in one; a heading is of no chat and cannot be chosen."""

    def __init__(self, words: Content, *, chat_id: str = "", title: str = "", message_id: int | None = None) -> None:
        super().__init__(words, disabled=not chat_id)
        self.chat_id, self.title, self.message_id = chat_id, title, message_id

    @property
    def target(self) -> tuple[str, int | None]:
        return self.chat_id, self.message_id


class MoreChats(Option):
    """The last row, where there are more chats to list."""

    def __init__(self) -> None:
        super().__init__(Content.styled("  more chats…", QUIET))


class ChatList(OptionList):
    """The list of chats. Actions on the chat under the cursor are messages to its parent; `write` is given the keys
    that are typed into the search, and none for a letter that may be one of the list's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "Open", show=False, id="chats.open"),
        Binding("slash", "want('search')", "Search", show=False, id="chats.search"),
        Binding("p", "want('pin')", "Pin", show=False, id="chats.pin"),
        Binding("r", "want('rename')", "Rename", show=False, id="chats.rename"),
        Binding("space", "want('mark')", "Mark", show=False, id="chats.mark"),
        Binding("delete", "want('delete')", "Delete", show=False, id="chats.delete"),
    ]

    class Wanted(Message):
        """A key was pressed; `row` is the chat under the cursor, if there is one."""

        def __init__(self, what: str, row: ChatRow | None) -> None:
            super().__init__()
            self.what, self.row = what, row

    def __init__(self, search: Widget, write: Callable[[Sequence[Key]], None]) -> None:
        super().__init__(markup=False, compact=True, id="chat-list")
        self._search, self._write = search, write
        self._waits: Key | None = None  # a letter that is a key, unless a word goes on
        self._rest: TimerHandle | None = None

    @property
    def row(self) -> ChatRow | None:
        option = self.highlighted_option
        return option if isinstance(option, ChatRow) else None

    def fill(self, rows: Sequence[Option], *, afresh: bool, start: str | None) -> None:
        """The cursor goes where `start_at` says; or it stays on its chat, and where that is gone, on its row."""
        before, index = self.row, self.highlighted
        self.set_options(rows)
        if afresh:
            self.start_at(start)
            return
        free = self._free
        same = [number for number in free if before is not None and target(rows[number]) == before.target]
        near = [number for number in free if number >= (index or 0)] or free[-1:]
        self.highlighted = next(iter(same or near), None)

    def start_at(self, chat_id: str | None) -> None:
        """The cursor goes to this chat; to the first row where it is not listed, or for None."""
        listed = [number for number in self._free if target(self.options[number]) == (chat_id, None)]
        self.highlighted = next(iter(listed or self._free), None)

    @property
    def _free(self) -> list[int]:
        """The rows that can be chosen."""
        return [number for number, row in enumerate(self.options) if not row.disabled]

    # --- a word, or a key

    def on_key(self, event: Key) -> None:
        if self.screen.focused is self._search:
            is_typed = True  # it came while the focus went there
        elif event.is_printable:
            is_typed = self._waits is not None or not self._acts_at_once(event)
        else:
            is_typed = False
            self._act()
        if is_typed:
            event.stop()
            self._type(event)

    def on_blur(self) -> None:
        self._forget()

    def _acts_at_once(self, event: Key) -> bool:
        """No search begins with a blank; and what changes nothing need not wait."""
        return event.key in self.screen.active_bindings and (event.character == " " or not self._change(event.key))

    def _change(self, key: str) -> str:
        return next((what for what in CHANGES if key in keys_of(self, f"chats.{what}")), "")

    def _type(self, event: Key) -> None:
        before = self._forget()
        if before is None and self.screen.focused is self and self._change(event.key):
            self._waits = event
            self._rest = once(self, REST_SECONDS, self._act)
            self._write([])
        else:
            self._write([event] if before is None else [before, event])

    def _act(self) -> None:
        """The letter was a key."""
        if (waited := self._forget()) is not None:
            self.action_want(self._change(waited.key))

    def _forget(self) -> Key | None:
        if self._rest is not None:
            self._rest.cancel()
        waited, self._waits, self._rest = self._waits, None, None
        return waited

    def action_want(self, what: str) -> None:
        self.post_message(self.Wanted(what, self.row))


def target(option: Option) -> tuple[str, int | None] | None:
    return option.target if isinstance(option, ChatRow) else None


@dataclass(frozen=True, slots=True)
class Signs:
    """What stands before a chat: that it runs, or that the user has marked it."""

    running: str | None = None
    marked: Container[str] = ()

    def of(self, chat_id: str) -> str:
        return f"{MARKED} " if chat_id in self.marked else f"{RUNNING} " if chat_id == self.running else "  "


def listed(chats: Sequence[StoredChat], *, signs: Signs, today: date) -> list[Option]:
    """Groups the chats under headings, in the order given."""
    rows: list[Option] = []
    for name, group in groupby(chats, lambda chat: PINNED if chat.pinned else period(chat.updated_at, today)):
        rows += [heading(name), *(chat_row(chat.id, chat.title, signs) for chat in group)]
    return rows


def period(at: str, today: date) -> str:
    """The heading for a time, by the user's clock; an unreadable time counts as old."""
    try:
        days = (today - datetime.fromisoformat(at).astimezone().date()).days
    except (ValueError, OverflowError, OSError):
        return OLDER
    return TODAY if days <= 0 else YESTERDAY if days == 1 else WEEK if days <= 7 else OLDER


def found(hits: Sequence[SearchHit], *, signs: Signs) -> list[Option]:
    """Each chat once, with its messages below; only where there was a hit is a row."""
    return [row for chat_hits in by_chat(hits) for row in hit_rows(chat_hits, signs)]


def hit_rows(hits: Sequence[SearchHit], signs: Signs) -> Iterable[Option]:
    first = hits[0]
    mark, name = signs.of(first.chat_id), first.title
    if first.message_id is None:
        yield ChatRow(Content.assemble(mark, shown(first.parts)), chat_id=first.chat_id, title=name)
    else:
        yield heading(title(name), mark)
    for hit in hits:
        if hit.message_id is not None:
            words = Content.assemble((f"  {speaker(hit)}: ", QUIET), shown(leading(hit.parts)))
            yield ChatRow(words, chat_id=hit.chat_id, title=name, message_id=hit.message_id)


def heading(text: str, before: str = "") -> ChatRow:
    return ChatRow(Content.assemble(before, (text, f"bold {QUIET}")))


def chat_row(chat_id: str, name: str, signs: Signs) -> ChatRow:
    return ChatRow(Content.assemble(signs.of(chat_id), title(name)), chat_id=chat_id, title=name)


def shown(parts: Sequence[TextPart]) -> Content:
    """The parts on one line, with the matches marked."""
    return Content.assemble(*((spaced(part.text), MATCH if part.matches else "") for part in parts))


def leading(parts: Sequence[TextPart]) -> list[TextPart]:
    """Shortens the text before the first match."""
    first, *rest = parts or (TextPart("", False),)
    if first.matches or len(first.text) <= BEFORE:
        return [first, *rest]
    return [TextPart(f"…{first.text[-BEFORE:]}", False), *rest]


def spaced(text: str) -> str:
    return re.sub(r"\s+", " ", clean(text))
