"""The chats that were kept, beside the one that runs: shown, searched, chosen, pinned, renamed, marked, deleted.

Asks the store in threads and draws what it says. What changes the running chat is asked of the screen.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Key
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.core.errors import LocalspecError
from localspec.core.sanitize import one_line
from localspec.history.text.lists import title
from localspec.tui.chat.chat_store import ChatStore
from localspec.tui.keys.key_names import keys_of, with_keys
from localspec.tui.panels.chat_list import ChatList, ChatRow, MoreChats, Signs, found, listed
from localspec.tui.panels.field import LONGEST, Field
from localspec.tui.panels.speed_panel import LEAST_WIDTH, WIDE
from localspec.tui.terminal.bound_keys import runs_binding
from localspec.tui.terminal.timer import once

PAGE = 200  # chats read at first, and again as many when the cursor comes to the last
TYPING_SECONDS = 0.15  # a search begins when the fingers rest so long
KEYS = (
    "{chats.open} open · {chats.search} search · {chats.pin} pin · {chats.rename} rename · {chats.mark} mark · "
    "{chats.delete} delete"
)
PINNED, UNPINNED, RENAMED = "Pinned: “{}”", "No longer pinned: “{}”", "Was: “{}”"
MOST_NAMED = 3
NO_CHATS = "There are no chats yet."
NO_HITS = "No messages match."


class Sidebar(Vertical):
    """Lists the chats at the left of a wide screen; else over the chat while the user keeps it open. `running` is
    the chat to mark."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False, id="chats.up"),
        Binding("down", "move(1)", "Down", show=False, id="chats.down"),
    ]

    class Chosen(Message):
        """Open this chat; at the words in this message, if there is one."""

        def __init__(self, chat_id: str, message_id: int | None = None, words: str = "") -> None:
            super().__init__()
            self.chat_id, self.message_id, self.words = chat_id, message_id, words

    class DeleteRequested(Message):
        """Delete these chats: the user has been asked."""

        def __init__(self, *chat_ids: str) -> None:
            super().__init__()
            self.chat_ids = chat_ids

    class Left(Message):
        """The user is done here."""

    def __init__(self, store: ChatStore) -> None:
        super().__init__()
        self.store = store
        self.border_title = "Chats"
        self.search = Field(placeholder="Search…", compact=True, max_length=LONGEST, id="chat-search")
        self.list = ChatList(self.search, self._write)
        self.name_field = Field(compact=True, id="chat-name")
        self.line = Static(markup=False, id="chat-line")
        self.running: str | None = None
        self.chosen: bool | None = None  # by the user, for a wide screen
        self.display = self.name_field.display = False
        self._limit = PAGE
        self._drawn: str | None = None  # the search whose rows are drawn
        self._marked: dict[str, str] = {}  # titles, by id
        self._to_delete: set[str] = set()
        self._renamed: ChatRow | None = None
        self._done = ""  # what was changed, until the next key
        self._rest: TimerHandle | None = None

    def compose(self) -> ComposeResult:
        yield from (self.search, self.list, self.name_field, self.line)

    # --- where it is

    @property
    def covers(self) -> bool:
        return self.display and self.has_class("-over")

    def settle(self, width: int) -> None:
        """The screen is so wide now. Only a wide one shows the chats unasked, until the user hides them."""
        wide = width >= WIDE
        shown = (self.store.kept if self.chosen is None else self.chosen) if wide else self.covers
        self.set_class(not wide, "-over")
        self.set_class(width < LEAST_WIDTH, "-whole")
        self._appear(shown)

    def toggle(self) -> None:
        """Show the chats and go to them; from there, hide them."""
        if self.display and self.has_focus_within:
            self.hide()
        else:
            self.show()
            self.list.focus()
            if not self._drawn:
                self.list.start_at(self.running)

    def show(self) -> None:
        self._appear(True)
        self._remember()

    def hide(self) -> None:
        self._appear(False)
        self._remember()

    def leave(self) -> None:
        """Esc: a title that is not renamed after all stays, and so do marked chats; else away from here, where all
        chats are again."""
        if self.name_field.display:
            self._stop_renaming()
        elif self._marked:
            self._unmark()
            self.read()
        elif self.covers:
            self.hide()
        else:
            self.search.value = ""
            self.post_message(self.Left())

    def seek(self, query: str) -> None:
        """Search for this."""
        self.show()
        self.search.value = query[:LONGEST]
        self.search.focus()

    def _appear(self, shown: bool) -> None:
        if shown and not self.display:
            self.display = True
            self.call_after_refresh(self.read)  # what has to be drawn first is drawn without it
        elif self.display and not shown:
            if self.has_focus_within:
                self.post_message(self.Left())
            self.display = self.name_field.display = False
            self.search.value, self._drawn = "", None
            self._unmark()

    def _remember(self) -> None:
        if not self.has_class("-over"):
            self.chosen = self.display

    # --- what it shows

    def on_mount(self) -> None:
        self.say("")
        self.call_after_refresh(self.read)

    def mark(self, running: str | None) -> None:
        """This chat runs now."""
        self.running = running
        self.read()

    def read(self, *, then_choose: bool = False) -> None:
        """Draw what the history has now. What was asked for before and has not come yet is dropped."""
        if self.display:
            self._read(then_choose)

    @work(group="chats", exclusive=True)
    async def _read(self, then_choose: bool) -> None:
        query = self.search.value.strip()
        try:
            rows = await asyncio.to_thread(self._found if query else self._listed, query)
        except LocalspecError as fault:
            self._draw([], query, str(fault))
        else:
            self._draw(rows, query, "" if rows else NO_HITS if query else NO_CHATS)
            if then_choose:
                self.list.action_select()

    def _draw(self, rows: Sequence[Option], query: str, sentence: str) -> None:
        afresh = query != self._drawn or not self.has_focus_within
        self.list.fill(rows, afresh=afresh, start=None if query else self.running)
        self._drawn, self._to_delete = query, set()
        self.say(sentence or self._done)

    def _listed(self, _: str) -> list[Option]:
        chats = self.store.chats(self._limit + 1)
        more = [MoreChats()] if len(chats) > self._limit else []
        return [*listed(chats[: self._limit], signs=self._signs, today=date.today()), *more]

    def _found(self, query: str) -> list[Option]:
        return found(self.store.find(query), signs=self._signs)

    @property
    def _signs(self) -> Signs:
        return Signs(self.running, frozenset(self._marked))

    def say(self, sentence: str) -> None:
        """Shows a sentence instead of the keys; "" brings the keys back."""
        self.line.update(one_line(sentence) or with_keys(self, KEYS))
        self.line.set_class(bool(sentence), "-says")

    # --- what the user does

    def action_move(self, direction: int) -> None:
        """Moves the list's cursor while the search field has the focus."""
        move = self.list.action_cursor_up if direction < 0 else self.list.action_cursor_down
        move()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.input is self.search and self.display:
            if self._rest is not None:
                self._rest.cancel()
            self._rest = once(self, TYPING_SECONDS, self.read)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.input is self.name_field:
            self._rename(one_line(event.value))
        elif self.search.value.strip() == self._drawn:
            self.list.action_select()
        else:
            self.read(then_choose=True)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if isinstance(event.option, ChatRow):
            self.post_message(self.Chosen(*event.option.target, words=self._drawn or ""))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if isinstance(event.option, MoreChats):
            self._limit += PAGE
            self.read()
        elif isinstance(event.option, ChatRow) and not self._marked and event.option.chat_id not in self._to_delete:
            self._keep()  # the mouse chose another

    def on_chat_list_wanted(self, event: ChatList.Wanted) -> None:
        """A chat is changed from its own row, not from a message found in it."""
        event.stop()
        if event.what == "search":
            self.search.focus()
        elif event.row is not None and event.row.message_id is None:
            change = {
                "pin": self._pin,
                "rename": self._ask_name,
                "mark": self._mark,
                "delete": self._ask_or_delete,
            }[event.what]
            change(event.row)

    def on_key(self, event: Key) -> None:
        """Any other key than Delete, such as a letter of a word, is no yes."""
        if event.key not in keys_of(self, "chats.delete"):
            self._keep()
        self._has_read()

    def _has_read(self) -> None:
        """A key was pressed: what was done has been read."""
        if self._done:
            self._done = ""
            self.say("")

    def _write(self, keys: Sequence[Key]) -> None:
        """Types these into the search, which begins anew where the list had the focus."""
        self._keep()
        self._has_read()
        if keys and self.screen.focused is self.list:
            self.search.value = ""
            self.screen.set_focus(self.search)  # now: what is typed next is in its queue already
        for key in keys:
            self.search.call_later(self._type, key)  # after the focus, which selects what is there

    async def _type(self, key: Key) -> None:
        if not key.is_printable:
            await runs_binding(self.search, key.key)
        elif key.character:
            self.search.insert_text_at_cursor(key.character)

    def _keep(self) -> None:
        """Deletes nothing after all, where that was asked about."""
        if self._to_delete:
            self._to_delete = set()
            self.say("")

    def _pin(self, row: ChatRow) -> None:
        self.change(lambda: (PINNED if self.store.pin(row.chat_id) else UNPINNED).format(title(row.title)))

    def _mark(self, row: ChatRow) -> None:
        """Marks the chat, or takes the mark away, and goes on to the next."""
        if self._marked.pop(row.chat_id, None) is None:
            self._marked[row.chat_id] = title(row.title)
        self.list.action_cursor_down()
        self.read()

    def _unmark(self) -> None:
        self._marked, self._to_delete = {}, set()

    def _ask_or_delete(self, row: ChatRow) -> None:
        """Asks once for all that are marked, or for this chat where none is; then deletes."""
        doomed = set(self._marked) or {row.chat_id}
        if self._to_delete == doomed:
            self._unmark()
            self.say("")
            self.post_message(self.DeleteRequested(*sorted(doomed)))
        else:
            self._to_delete = doomed
            named = names([*self._marked.values()] or [title(row.title)])
            self.say(f"{with_keys(self, 'Press {chats.delete} again')} to delete {named} for good.")

    def _ask_name(self, row: ChatRow) -> None:
        self._renamed = row
        self.name_field.value = name = one_line(row.title)
        self.name_field.max_length = max(LONGEST, len(name))  # else nothing could be taken from a longer one
        self.name_field.display = True
        self.name_field.focus()

    def _rename(self, name: str) -> None:
        self._stop_renaming()
        if name and (row := self._renamed) is not None:
            self.change(partial(self.store.rename, row.chat_id, name), RENAMED.format(title(row.title)))

    def _stop_renaming(self) -> None:
        self.name_field.display = False
        self.list.focus()

    @work(group="changes")
    async def change(self, step: Callable[[], str | None], done: str = "") -> None:
        """Do this in a thread, then draw what has come of it, and say so: `done`, or what the step returns."""
        try:
            sentence = await asyncio.to_thread(step)
        except LocalspecError as fault:
            self.say(str(fault))
        else:
            self._done = sentence or done
            self.read()


def names(titles: Sequence[str]) -> str:
    """The chats by their titles: the first of many, and how many there are."""
    named = ", ".join(f"“{each}”" for each in titles[:MOST_NAMED])
    more = f" and {len(titles) - MOST_NAMED} more" if len(titles) > MOST_NAMED else ""
    return f"{f'{len(titles)} chats: ' if len(titles) > 1 else ''}{named}{more}"
