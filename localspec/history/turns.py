"""A chat as it is being said: asked, answered so far, left. Knows where each goes in the history, and no threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from localspec.errors import NoSuchChat
from localspec.events import Record
from localspec.history.records import Answer, Chat, NewChat, NewMessage, StoredMessage
from localspec.history.store import History


class Asked(Record, frozen=True):
    """A question was sent. The first of a chat begins it, as `chat` says; others may say its model or preset anew."""

    chat: NewChat
    question: str


class Answered(Record, frozen=True):
    """The answer to the question before it: so far, in place of what was said of it earlier, or as it ended."""

    answer: Answer


class Instructed(Record, frozen=True):
    """The chat has another system prompt from now on. One that has not begun is told so when it does."""

    system: str | None


class Left(Record, frozen=True):
    """The next question begins another chat."""


class Opened(Record, frozen=True):
    """The next question goes on in this chat, below its head."""

    chat: Chat


class Located(Record, frozen=True):
    """Somebody wants to know where the chat is kept: `tell` is called with its id when all before this is written."""

    tell: Callable[[str | None], object]


Said = Asked | Answered | Instructed | Left | Opened | Located


class Turns:
    """The place in the history where a chat goes on; other programs may have gone on elsewhere in the same one."""

    def __init__(self, chat: Chat | None = None) -> None:
        self._chat_id: str | None = None
        self._last: int | None = None
        self._answer: int | None = None  # the one being written, once any of it is
        self._kind: tuple[str, str | None] | None = None
        self._go_on(chat)

    def write(self, history: History, said: Said) -> None:
        """When it raises it may be tried again, and writes nothing twice."""
        match said:
            case Asked():
                message = self._asked(history, said)
                self._chat_id, self._last, self._answer = message.chat_id, message.id, None
            case Answered() if self._chat_id is not None:
                self._save(history, self._chat_id, said.answer)
            case Instructed() if self._chat_id is not None:
                history.change(self._chat_id, system=said.system)
            case Left():
                self._go_on(None)
            case Opened():
                self._go_on(said.chat)
            case Located():
                said.tell(self._chat_id)

    def _asked(self, history: History, asked: Asked) -> StoredMessage:
        """A chat that another program deleted begins again."""
        kind = (asked.chat.model_key, asked.chat.preset)
        if self._chat_id is not None:
            with suppress(NoSuchChat):
                if kind != self._kind:
                    history.change(self._chat_id, model_key=asked.chat.model_key, preset=asked.chat.preset)
                    self._kind = kind
                return history.append(NewMessage(self._chat_id, "user", asked.question, self._last))
        begun = history.begin(asked.chat, asked.question)
        self._kind = kind
        return begun

    def _save(self, history: History, chat_id: str, answer: Answer) -> None:
        try:
            if self._answer is None:
                place = NewMessage(chat_id, "assistant", "", self._last, status="partial")
                self._answer = self._last = history.append(place).id
            history.save(self._answer, answer)
        except NoSuchChat as fault:
            self._go_on(None)
            raise NoSuchChat(fault.message, hint="Your next message begins a new chat.") from fault

    def _go_on(self, chat: Chat | None) -> None:
        self._chat_id = chat.id if chat else None
        self._last = chat.head_id if chat else None
        self._kind = (chat.model_key, chat.preset) if chat else None
        self._answer = None
