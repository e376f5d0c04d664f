"""The chats that were kept: opened, searched, deleted from the sidebar; words found in this one; this one exported."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cached_property

from textual import work

from localspec.core.errors import LocalspecError, UsageError
from localspec.core.events import Notice, Step
from localspec.core.whole_file import save
from localspec.history import Format, OpenChat, export
from localspec.tui.chat.chat_store import Shelf
from localspec.tui.chat.conversation import Utterance
from localspec.tui.chat.past import record
from localspec.tui.chat.recorder import Kept
from localspec.tui.control import export_file
from localspec.tui.control.steering import SteerScreen
from localspec.tui.panels.find import FindBar
from localspec.tui.panels.sidebar import Sidebar

EXPORTS: tuple[Format, ...] = ("md", "json", "jsonl")
NOTHING_SAID = "Nothing has been said in this chat: there is nothing to export."


class ChatsScreen(SteerScreen):
    """`chat_id` is the running chat's place in the history, once it has one."""

    chat_id: str | None = None

    @cached_property
    def shelf(self) -> Shelf:
        return Shelf(kept=self.scribe.keeps, tell=self.tell)

    @cached_property
    def sidebar(self) -> Sidebar:
        return Sidebar(self.shelf)

    @cached_property
    def find(self) -> FindBar:
        return FindBar(self.texts)

    def action_chats(self) -> None:
        self.sidebar.toggle()

    def command_chats(self, _: str) -> None:
        self.action_chats()

    def command_search(self, argument: str) -> None:
        self.sidebar.seek(argument)

    def on_kept(self, message: Kept) -> None:
        self.chat_id = message.chat_id
        self.sidebar.mark(message.chat_id)

    def on_sidebar_left(self) -> None:
        self.prompt.focus()

    async def on_sidebar_chosen(self, message: Sidebar.Chosen) -> None:
        if self.sidebar.covers:
            self.sidebar.hide()
        self.prompt.focus()
        if message.message_id is not None or message.chat_id != self.chat_id:
            await self.take_back()
            await self.break_off()
            self.fetch(message.chat_id, message.message_id)

    @work(group="opening", exclusive=True)
    async def fetch(self, chat_id: str, message_id: int | None) -> None:
        """Read the chat in a thread; the screen goes on in its own time."""
        try:
            if chat_id == self.chat_id:
                await asyncio.to_thread(self.scribe.settled)
            past = await asyncio.to_thread(self.shelf.open, chat_id, message_id)
        except LocalspecError as fault:
            self.tell(Notice("warning", fault.code, fault.message, fault.hint))
        else:
            self.call_later(self.open_at, past, message_id)

    async def open_at(self, past: OpenChat, message_id: int | None) -> None:
        await self.open_chat(past)
        if said := self.conversation.tree.nodes.get(message_id or 0):
            await self.reveal(said)

    async def on_sidebar_doomed(self, message: Sidebar.Doomed) -> None:
        """The running chat is left before it is deleted."""
        running = message.chat_id == self.chat_id
        if running:
            await self.begin_chat()

        def delete() -> None:
            if running:
                self.scribe.settled()
            self.shelf.delete(message.chat_id)

        self.sidebar.change(delete)

    # --- finding in this chat

    def texts(self) -> list[str]:
        """With what was attached to them: a long paste is what the user said, too."""
        return [
            "\n".join([said.text, *(one.text or "" for one in said.attachments)]) for said in self.conversation.branch
        ]

    def action_find(self) -> None:
        self.find.open()

    async def on_find_bar_found(self, message: FindBar.Found) -> None:
        await self.reveal(self.conversation.branch[message.place])

    def on_find_bar_left(self) -> None:
        self.query(".-found").remove_class("-found")
        self.prompt.focus()

    async def reveal(self, said: Utterance) -> None:
        """Bring the message into sight, and mark it."""
        message = await self.transcript.reach(said)
        self.query(".-found").remove_class("-found")
        if message is None:
            return
        message.add_class("-found")
        self.transcript.release_anchor()
        self.call_after_refresh(self.transcript.scroll_to_widget, message, top=True, animate=False)

    # --- exporting it

    def command_export(self, argument: str) -> None:
        typed, _, path = argument.partition(" ")
        kind = next((kind for kind in EXPORTS if kind == (typed.lower() or EXPORTS[0])), None)
        if kind is None:
            self.refuse(f"Try: {', '.join(f'/export {each}' for each in EXPORTS)}")
        else:
            self.scribe.save(self.tally.stats)
            self.export_chat(kind, path.strip(), self.obeyed)

    @work(group="export")
    async def export_chat(self, kind: Format, where: str, typed: str) -> None:
        held = record(self.conversation, self.title or "", self.scribe.model_key)
        seen = {said.id: (*said.rounds,) for said in self.conversation.tree.nodes.values()}

        def rounds(number: int) -> tuple[Step, ...]:
            return seen[number] or (*self.scribe.rounds(number),)

        def write() -> str:
            text, title = self.kept_text(kind) or (export(held, rounds, kind), held.chat.title)
            path = export_file.place(where, title, kind)
            save(path, text)
            return f"This chat is now in {path.absolute()}"

        try:
            if not held.tree.nodes:
                raise UsageError(NOTHING_SAID)
            self.tell(Notice("info", "exported", await asyncio.to_thread(write)))
        except LocalspecError as fault:
            self.give_back(typed)
            self.tell(Notice("warning", fault.code, fault.message, fault.hint))

    def kept_text(self, kind: Format) -> tuple[str, str] | None:
        """The chat as the history has all of it, and its title; None where it cannot be had. Waits for the disk."""
        with suppress(LocalspecError):
            chat_id = self.scribe.settled()
            return self.shelf.text(chat_id, kind) if chat_id else None
        return None
