"""The updates of a running chat (asked, answered so far, branch shown, left), applied to the history.

The sender numbers its messages, because their rows are written later: an id from OWN on is the sender's, a smaller one
is the row of a message that was saved before. Knows no threads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from localspec.core.errors import NoSuchChat
from localspec.core.events import Notice, Record
from localspec.core.process import this
from localspec.history.records import (
    Attachment,
    NewChat,
    SavedAnswer,
    StoredChat,
    StoredMessage,
    Unsent,
    WhenFull,
    gone,
)

if TYPE_CHECKING:
    from localspec.history.store import History

OWN = 1 << 48  # no history gets that far
# Unless another reason comes.
ENDED_FIRST = "localspec ended before it was answered, or still answers it in another terminal."
NEXT_ANEW = "Your next message starts a new chat."
ANEW = Notice("info", "history_anew", "This chat was deleted elsewhere; your last message starts a new one.")


class Asked(Record, frozen=True):
    """A question was sent, below `parent`. The first creates the chat from `chat`; a later one may give it another
    preset. `title`: what a chat that begins with this one is called."""

    chat: NewChat
    question: str
    id: int
    parent: int | None
    attachments: tuple[Attachment, ...] = ()
    title: str = ""


class Answered(Record, frozen=True):
    """An answer to `parent`, so far or finished; it replaces what was saved of it. `model_key`: the chat is that
    model's from now on."""

    answer: SavedAnswer
    id: int
    parent: int
    model_key: str = ""


class Unanswered(Record, frozen=True):
    """The question's answer has not begun, and does not: `reason` says why."""

    id: int
    reason: str


class Edited(Record, frozen=True):
    """The user's own version of the answer to `parent`."""

    text: str
    id: int
    parent: int


class Moved(Record, frozen=True):
    """The branch down to `head` is shown; None is before the chat's first message."""

    head: int | None


class Removed(Record, frozen=True):
    """The message was deleted with all below it; with its last message the chat is deleted, too."""

    id: int


class Instructed(Record, frozen=True):
    """The chat's system prompt was changed; a chat that has no question yet gets it with the first."""

    system: str | None


class Shortened(Record, frozen=True):
    """What to do when the context is full, and how many of the oldest turns are left out of it."""

    when_full: WhenFull | None
    turns_left_out: int


class Titled(Record, frozen=True):
    """The chat is called so from now on; with `instead_of` only if it is still called that."""

    title: str
    instead_of: str | None = None


class Left(Record, frozen=True):
    """The chat was left: the next question starts another."""


class Opened(Record, frozen=True):
    """A chat was opened: the next question continues it."""

    chat: StoredChat


class Written(Record, frozen=True):
    """What is in the prompt and was not sent, in place of what this program kept of it and, by their ids, of what it
    `took` from an earlier one. `is_left`: the chat is left with it."""

    unsent: tuple[Unsent, ...]
    took: tuple[int, ...] = ()
    is_left: bool = False


class Sought(Record, frozen=True):
    """A request for what was not sent in this chat, or to this server in a new one: `reply` is called with it once
    every update before this one is written."""

    server: str
    reply: Callable[[tuple[Unsent, ...]], object]


class Located(Record, frozen=True):
    """A request for the chat's id: `reply` is called with it once every update before this one is written."""

    reply: Callable[[str | None], object]


Update = (
    Asked
    | Answered
    | Unanswered
    | Edited
    | Moved
    | Removed
    | Instructed
    | Shortened
    | Titled
    | Left
    | Opened
    | Written
    | Sought
    | Located
)


class TurnWriter:
    """Writes a running chat's updates: knows its row and those of its messages. Other programs may write, too."""

    def __init__(self, chat: StoredChat | None = None) -> None:
        self._chat_id: str | None = None
        self._model = ""  # as the history has it
        self._preset: str | None = None
        self._rows: dict[int, int] = {}  # of the ids that are our own
        self._unsent: tuple[int, ...] = ()  # the rows of what is in the prompt
        self._continue(chat)

    def write(self, history: History, update: Update) -> Notice | None:
        """Writes one update; returns what the user should know. A retry after an error writes nothing twice."""
        if isinstance(update, Asked):
            return self._ask(history, update)
        self._follow(history, update)
        return None

    def _follow(self, history: History, update: Update) -> None:
        """Writes any update but a question."""
        match update:
            case Answered() if self._chat_id is not None:
                self._save(history, self._chat_id, update)
            case Unanswered() if self._chat_id is not None:
                with suppress(NoSuchChat):  # deleted by another program: the next question finds that out
                    history.explain(self._row(update.id) or 0, update.reason)
            case Edited() if self._chat_id is not None:
                self._edit(history, self._chat_id, update)
            case Moved() if self._chat_id is not None:
                with suppress(NoSuchChat):  # deleted by another program: the next question finds that out
                    history.set_head(self._chat_id, self._row(update.head))
            case Removed() if self._chat_id is not None:
                self._remove(history, self._chat_id, update.id)
            case Instructed() | Shortened() | Titled() if self._chat_id is not None:
                self._change(history, self._chat_id, update)
            case Left():
                self._continue(None)
            case Opened():
                self._continue(update.chat)
            case Written():
                self._keep(history, update)
            case Sought():
                update.reply(history.unsent(self._chat_id, update.server))
            case Located():
                update.reply(self._chat_id)

    def _ask(self, history: History, asked: Asked) -> Notice | None:
        before, is_first = self._chat_id, self._chat_id is None and asked.parent is None
        message = self._asked(history, replace(asked.chat, title=asked.chat.title if is_first else asked.title), asked)
        if message.chat_id != before:
            self._rows.clear()
            self._model = asked.chat.model_key
        self._chat_id, self._rows[asked.id], self._unsent = message.chat_id, message.id, ()
        self._preset = asked.chat.preset
        return ANEW if before not in (None, message.chat_id) else None

    def _asked(self, history: History, chat: NewChat, asked: Asked) -> StoredMessage:
        """Adds the question; a chat that another program has deleted is created again, as `chat`."""
        if self._chat_id is not None:
            with suppress(NoSuchChat):
                if asked.chat.preset != self._preset:
                    history.change(self._chat_id, preset=asked.chat.preset)
                parent, attached = self._row(asked.parent), asked.attachments
                message = StoredMessage.unsaved(self._chat_id, "user", asked.question, parent, attachments=attached)
                return history.append(replace(message, reason=ENDED_FIRST), sends=self._unsent)
        return history.begin(
            chat, asked.question, attachments=asked.attachments, sends=self._unsent, reason=ENDED_FIRST
        )

    def _save(self, history: History, chat_id: str, answered: Answered) -> None:
        try:
            if answered.id >= OWN and answered.id not in self._rows:
                message = StoredMessage.unsaved(chat_id, "assistant", "", self._row(answered.parent), status="partial")
                self._rows[answered.id] = history.append(message).id
            history.save(self._rows.get(answered.id, answered.id), answered.answer)
            if answered.model_key not in ("", self._model):
                history.change(chat_id, model_key=answered.model_key)
                self._model = answered.model_key
        except NoSuchChat as fault:
            raise self._ended(fault) from fault

    def _edit(self, history: History, chat_id: str, edited: Edited) -> None:
        try:
            parent, length = self._row(edited.parent), len(edited.text)
            message = StoredMessage.unsaved(chat_id, "assistant", edited.text, parent, edited=length)
            self._rows[edited.id] = history.append(message).id
        except NoSuchChat as fault:
            raise self._ended(fault) from fault

    def _keep(self, history: History, written: Written) -> None:
        """A message that is edited is known by its row, or is gone: then what was made of it is a new one."""
        unsent = [replace(one, edits=self._rows.get(one.edits or 0, one.edits)) for one in written.unsent]
        instead_of, writer = (*self._unsent, *written.took), None if written.is_left else this()
        kept = history.keep_unsent(self._chat_id, *unsent, instead_of=instead_of, writer=writer)
        self._unsent = () if written.is_left else kept

    def _ended(self, fault: NoSuchChat) -> NoSuchChat:
        """The chat was deleted elsewhere: the next question starts another."""
        self._continue(None)
        return NoSuchChat(fault.message, hint=NEXT_ANEW)

    def _change(self, history: History, chat_id: str, update: Instructed | Shortened | Titled) -> None:
        """Changes the chat itself."""
        match update:
            case Instructed():
                history.change(chat_id, system=update.system)
            case Shortened():
                history.change(chat_id, when_full=update.when_full, turns_left_out=update.turns_left_out)
            case Titled():
                self._title(history, chat_id, update)

    def _title(self, history: History, chat_id: str, titled: Titled) -> None:
        with suppress(NoSuchChat):  # deleted by another program: the next question finds that out
            if titled.instead_of in (None, history.find_chat(chat_id).title):
                history.change(chat_id, title=titled.title)

    def _remove(self, history: History, chat_id: str, message_id: int) -> None:
        """Deletes the message, then a chat that is left empty: a retry finds the first step done."""
        with suppress(NoSuchChat):
            history.delete_message(self._rows.get(message_id, message_id))
        with suppress(NoSuchChat):
            if not history.find_chat(chat_id).num_messages:
                history.delete(chat_id)
                self._continue(None)

    def _row(self, message_id: int | None) -> int | None:
        if message_id is None or message_id < OWN:
            return message_id
        if message_id not in self._rows:
            raise gone("message")
        return self._rows[message_id]

    def _continue(self, chat: StoredChat | None) -> None:
        self._chat_id = chat.id if chat else None
        self._model, self._preset = (chat.model_key, chat.preset) if chat else ("", None)
        self._rows.clear()
        self._unsent = ()
