"""A chat as it is being said: asked, answered so far, turned back in, left. Knows where each goes in the history.

Whoever says something names it, because its row comes later: an id from OWN on is the speaker's own, and one below is
the history's, of a message that was kept before. Knows no threads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from localspec.core.errors import NoSuchChat
from localspec.core.events import Notice, Record
from localspec.history.records import Answer, Attachment, Chat, NewChat, NewMessage, StoredMessage, WhenFull, gone

if TYPE_CHECKING:
    from localspec.history.store import History

OWN = 1 << 48  # no history gets that far
ANEW = Notice("info", "history_anew", "This chat was deleted elsewhere; your last message begins a new one.")


class Asked(Record, frozen=True):
    """A question was sent, below `parent`. The first of a chat begins it, as `chat` says; others may say its model
    or preset anew."""

    chat: NewChat
    question: str
    id: int
    parent: int | None
    attachments: tuple[Attachment, ...] = ()


class Answered(Record, frozen=True):
    """An answer to `parent`: so far, in place of what was said of it earlier, or as it ended."""

    answer: Answer
    id: int
    parent: int


class Moved(Record, frozen=True):
    """The branch down to `head` is the one that is shown; None is before the chat's first message."""

    head: int | None


class Removed(Record, frozen=True):
    """The message is deleted, and all that was said after it; a chat without messages with the last of them."""

    id: int


class Instructed(Record, frozen=True):
    """The chat's system prompt is another from now on; one that has not begun says it when it does."""

    system: str | None


class Shortened(Record, frozen=True):
    """What is done in this chat where the context is full, and how many of its oldest turns the model is not told."""

    when_full: WhenFull | None
    untold: int


class Left(Record, frozen=True):
    """The next question begins another chat."""


class Opened(Record, frozen=True):
    """What is said next goes on in this chat."""

    chat: Chat


class Located(Record, frozen=True):
    """Somebody wants to know where the chat is kept: `tell` is called with its id when all before this is written."""

    tell: Callable[[str | None], object]


Said = Asked | Answered | Moved | Removed | Instructed | Shortened | Left | Opened | Located


class Turns:
    """A chat's place in the history, and where each of its messages is; other programs may write into the same one."""

    def __init__(self, chat: Chat | None = None) -> None:
        self._chat_id: str | None = None
        self._kind: tuple[str, str | None] | None = None
        self._rows: dict[int, int] = {}  # of the ids that are our own
        self._go_on(chat)

    def write(self, history: History, said: Said) -> Notice | None:
        """When it raises it may be tried again, and writes nothing twice. Returns what the user should know of it."""
        if isinstance(said, Asked):
            return self._ask(history, said)
        self._follow(history, said)
        return None

    def _follow(self, history: History, said: Said) -> None:
        """All but a question."""
        match said:
            case Answered() if self._chat_id is not None:
                self._save(history, self._chat_id, said)
            case Moved() if self._chat_id is not None:
                with suppress(NoSuchChat):  # deleted by another program: what is said next finds that out
                    history.set_head(self._chat_id, self._row(said.head))
            case Removed() if self._chat_id is not None:
                self._remove(history, self._chat_id, said.id)
            case Instructed() if self._chat_id is not None:
                history.change(self._chat_id, system=said.system)
            case Shortened() if self._chat_id is not None:
                history.change(self._chat_id, when_full=said.when_full, untold=said.untold)
            case Left():
                self._go_on(None)
            case Opened():
                self._go_on(said.chat)
            case Located():
                said.tell(self._chat_id)

    def _ask(self, history: History, asked: Asked) -> Notice | None:
        before, message = self._chat_id, self._asked(history, asked)
        if message.chat_id != before:
            self._rows.clear()
        self._chat_id, self._rows[asked.id] = message.chat_id, message.id
        self._kind = (asked.chat.model_key, asked.chat.preset)
        return ANEW if before not in (None, message.chat_id) else None

    def _asked(self, history: History, asked: Asked) -> StoredMessage:
        """A chat that another program deleted begins again."""
        if self._chat_id is not None:
            with suppress(NoSuchChat):
                if (asked.chat.model_key, asked.chat.preset) != self._kind:
                    history.change(self._chat_id, model_key=asked.chat.model_key, preset=asked.chat.preset)
                place, attached = self._row(asked.parent), asked.attachments
                return history.append(NewMessage(self._chat_id, "user", asked.question, place, attachments=attached))
        return history.begin(asked.chat, asked.question, attachments=asked.attachments)

    def _save(self, history: History, chat_id: str, said: Answered) -> None:
        try:
            if said.id >= OWN and said.id not in self._rows:
                place = NewMessage(chat_id, "assistant", "", self._row(said.parent), status="partial")
                self._rows[said.id] = history.append(place).id
            history.save(self._rows.get(said.id, said.id), said.answer)
        except NoSuchChat as fault:
            self._go_on(None)
            raise NoSuchChat(fault.message, hint="Your next message begins a new chat.") from fault

    def _remove(self, history: History, chat_id: str, message_id: int) -> None:
        """Two steps: a second try finds the first one done."""
        with suppress(NoSuchChat):
            history.delete_message(self._rows.get(message_id, message_id))
        with suppress(NoSuchChat):
            if not history.find_chat(chat_id).num_messages:
                history.delete(chat_id)
                self._go_on(None)

    def _row(self, message_id: int | None) -> int | None:
        if message_id is None or message_id < OWN:
            return message_id
        if message_id not in self._rows:
            raise gone("message")
        return self._rows[message_id]

    def _go_on(self, chat: Chat | None) -> None:
        self._chat_id = chat.id if chat else None
        self._kind = (chat.model_key, chat.preset) if chat else None
        self._rows.clear()
