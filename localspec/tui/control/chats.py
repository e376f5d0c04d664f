"""Chats: begun, opened, searched and deleted from the sidebar; this one exported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from localspec.core.errors import LocalspecError, UsageError
from localspec.core.events import Notice, Step
from localspec.core.requests import Reference
from localspec.core.sanitize import one_line
from localspec.core.whole_file import save
from localspec.history import ANEW, NEXT_ANEW, Format, OpenChat, export
from localspec.history.export import left_out
from localspec.history.text.lists import count
from localspec.tui.chat.chat_store import ChatStore
from localspec.tui.chat.saved_chat import record, remembered, title
from localspec.tui.control import export_file
from localspec.tui.control.edits import Edits
from localspec.tui.control.find import WordSearch
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.turns import Turns
from localspec.tui.control.unsent import UnsentText
from localspec.tui.panels.field import LONGEST
from localspec.tui.panels.sidebar import Sidebar

EXPORTS: tuple[Format, ...] = ("md", "json", "jsonl")
NOTHING_TO_EXPORT = "This chat is empty: there is nothing to export."
LEFT = "you opened another chat before it began."
ELSEWHERE = "you went to another message before it began."
BROKEN_OFF = "The answer that was being written was stopped when you left it; /continue there goes on."
UNANSWERED, ASK = "This message had no answer when the chat was opened", "{retry} asks for one."
STOPS = (
    "In this chat, a message that does not fit into the context stays unanswered, as you chose. "
    "/set context_overflow=ask asks again."
)


class Chats:
    """`chat_id` is the running chat's id in the history, once it has one. Before another chat comes, an answer that
    is being written is stopped and saved, and a question that waits goes back to the prompt. `opened` is called when
    another is on the screen."""

    chat_id: str | None = None
    broke_off = False  # an answer, and another chat is not there yet

    def __init__(self, parts: ChatParts, turns: Turns, edits: Edits, *, opened: Callable[[], object]) -> None:
        self.screen, self.state, self.feedback, self.work = parts.screen, parts.state, parts.feedback, parts.work
        self.conversation, self.transcript, self.recorder = parts.conversation, parts.transcript, parts.recorder
        self.turns, self.opened, self.tuning = turns, opened, parts.tuning
        self.store = ChatStore(kept=self.recorder.keeps, tell=self.feedback.tell)
        self.sidebar, self.finding = Sidebar(self.store), WordSearch(parts)
        self.unsent = UnsentText(parts, edits)

    # --- another chat

    async def show(self, past: OpenChat | None) -> None:
        """The chat that is gone on with, or how to begin one."""
        await self.transcript.begin(title(past) if past else "", self.conversation.branch)
        self.transcript.anchor()
        await self.transcript.grey(self.conversation.out_of_context)
        if (last := self.conversation.last()) is not None and last.role == "user":
            why = f": {one_line(self.feedback.words(last.reason))}" if last.reason else "."
            stops = f" {STOPS}" if self.conversation.when_full == "stop" else ""
            await self.feedback.note(f"{UNANSWERED}{why} {self.feedback.with_keys(ASK)}{stops}")

    async def begin(self) -> None:
        await self.leave(LEFT)
        self.unsent.leave(takes_along=True)
        self.recorder.leave()
        self.conversation.forget()
        await self.begin_with(None)

    async def leave(self, why: str) -> None:
        """What waits goes back to the prompt, and what is being written ends."""
        await self.turns.take_back()
        self.broke_off |= await self.turns.break_off(why)

    async def open(self, past: OpenChat) -> None:
        """Go on in a chat that was kept; what waits to be asked in this one goes back to the prompt."""
        await self.leave(LEFT)
        self.unsent.leave()
        self.recorder.open(past.chat)
        self.conversation.recall(past.chat, remembered(past))
        for notice in self.tuning.begin_chat(None, past):
            self.feedback.tell(notice)
        self.recorder.change(preset=self.tuning.preset)
        await self.begin_with(past)
        self.opened()

    async def begin_with(self, past: OpenChat | None) -> None:
        """The screen as it is at the start, with nothing of another chat."""
        self.feedback.status.end_hint()
        self.finding.close()
        self.state.forget_figures()
        if self.state.phase == "idle":
            self.state.enter("idle", "idle")  # nothing was stopped in this one
        self.state.title = past.chat.title if past else ""
        self.state.name_terminal()
        self.state.show_figures()
        self.turns.locate()
        await self.show(past)
        self.screen.refresh_bindings()
        if self.broke_off:
            self.broke_off = False
            self.feedback.hint(BROKEN_OFF, stays=True)  # the engine's end of it comes after
        self.unsent.seek(silent=past is not None and past.chat.id == self.chat_id)

    def lose_title(self, notice: Notice) -> None:
        """A chat that was deleted elsewhere is gone with its title: the question that begins another gives one."""
        if notice.code == ANEW.code:
            self.recorder.begin_anew()
            self.state.title = self.recorder.title or ""
            self.state.name_terminal()
        elif notice.hint == NEXT_ANEW:
            self.recorder.title = None

    def rename(self, argument: str) -> None:
        """/rename"""
        name = one_line(argument)[:LONGEST]
        if not name:
            self.feedback.refuse("Write the new title after it: /rename TEXT")
            return
        self.recorder.rename(name)
        self.state.title = name
        self.state.name_terminal()
        self.turns.locate()
        self.feedback.hint(f"This chat is now called “{name}”.")

    # --- the sidebar

    def toggle_list(self) -> None:
        """Show or hide the list of chats."""
        self.sidebar.toggle()

    def mark(self, chat_id: str | None) -> None:
        """The history has the running chat as this one."""
        self.chat_id = chat_id
        self.sidebar.mark(chat_id)

    def search(self, words: str) -> None:
        """/search"""
        self.sidebar.seek(words)

    async def choose(self, chat_id: str, message_id: int | None, words: str) -> None:
        """A chat, or a message in one that has these words, was chosen in the list."""
        if self.sidebar.covers:
            self.sidebar.hide()
        self.state.prompt.focus()
        if message_id is not None or chat_id != self.chat_id:
            await self.leave(ELSEWHERE if chat_id == self.chat_id else LEFT)
            self.work(partial(self.fetch, chat_id, message_id, words), "opening", exclusive=True)

    async def fetch(self, chat_id: str, message_id: int | None, words: str) -> None:
        """Read the chat in a thread; the screen goes on in its own time."""
        try:
            if chat_id == self.chat_id:
                await asyncio.to_thread(self.recorder.settled)
            past = await asyncio.to_thread(self.store.open, chat_id, message_id)
        except LocalspecError as fault:
            self.broke_off = False
            self.feedback.warn(fault)
        else:
            self.screen.call_later(self.open_at, past, message_id, words)

    async def open_at(self, past: OpenChat, message_id: int | None, words: str) -> None:
        """The chat, at the words in this message if there is one."""
        await self.open(past)
        if utterance := self.conversation.tree.nodes.get(message_id or 0):
            await self.finding.open_at(utterance, words)

    async def delete(self, *chat_ids: str) -> None:
        """The running chat is left before it is deleted."""
        running = self.chat_id in chat_ids
        if running:
            await self.begin()

        def delete() -> None:
            if running:
                self.recorder.settled()
            self.store.delete(*chat_ids)
            self.screen.app.call_from_thread(self.feedback.hint, f"Deleted {count(len(chat_ids), 'chat')}.")

        self.sidebar.change(delete)

    # --- copying from other chats

    async def kept(self) -> tuple[Reference, ...]:
        """The answers of other chats, where the user lets a look-up copy from them."""
        if self.tuning.config.lookup.kept_chats and self.recorder.keeps:
            with suppress(LocalspecError):  # an answer does without them
                return await asyncio.to_thread(self.store.answers, self.chat_id)
        return ()

    # --- exporting it

    def export(self, argument: str) -> None:
        """/export"""
        typed, _, path = argument.partition(" ")
        kind = next((kind for kind in EXPORTS if kind == (typed.lower() or EXPORTS[0])), None)
        if kind is None:
            self.feedback.refuse(f"Try: {', '.join(f'/export {each}' for each in EXPORTS)}")
        else:
            self.recorder.save(self.state.tally.stats)
            self.work(partial(self.export_chat, kind, path.strip(), self.feedback.command), "export")

    async def export_chat(self, kind: Format, where: str, typed: str) -> None:
        held = record(self.conversation, self.state.title, self.recorder.model_key)
        seen = {utterance.id: (*utterance.rounds,) for utterance in self.conversation.tree.nodes.values()}

        def rounds(number: int) -> tuple[Step, ...]:
            return seen[number] or (*self.recorder.rounds(number),)

        def write() -> str:
            text, whole = self.kept_text(kind) or (export(held, rounds, kind), held)
            path = export_file.target(where, whole.chat.title, kind)
            save(path, text)
            rest = left_out(whole, "/export json") if kind == "md" else ""
            return f"This chat is now in {path.absolute()}\n{rest}".strip()

        try:
            if not held.tree.nodes:
                raise UsageError(NOTHING_TO_EXPORT)
            self.feedback.answer(Notice("info", "exported", await asyncio.to_thread(write)))
        except LocalspecError as fault:
            self.feedback.give_back(typed)
            self.feedback.warn(fault)

    def kept_text(self, kind: Format) -> tuple[str, OpenChat] | None:
        """The chat as the history has all of it; None where it cannot be had. Waits for the disk."""
        with suppress(LocalspecError):
            chat_id = self.recorder.settled()
            return self.store.text(chat_id, kind) if chat_id else None
        return None
