"""A chat as it is being said: asked, answered so far, left. Knows where each goes in the history, and no threads."""

from __future__ import annotations

from contextlib import suppress

from localspec.errors import NoSuchChat
from localspec.events import Record
from localspec.history.records import Answer, Attachment, Chat, NewChat, NewMessage, StoredMessage
from localspec.history.store import History


class Asked(Record, frozen=True):
    """A question was sent. The first of a chat begins it, as `chat` says."""

    chat: NewChat
    question: str
    attachments: tuple[Attachment, ...] = ()


class Answered(Record, frozen=True):
    """The answer to the question before it: so far, in place of what was said of it earlier, or as it ended."""

    answer: Answer


class Left(Record, frozen=True):
    """The next question begins another chat."""


Said = Asked | Answered | Left


class Turns:
    """The place in the history where a chat goes on; other programs may have gone on elsewhere in the same one."""

    def __init__(self, chat: Chat | None = None) -> None:
        self._chat_id = chat.id if chat else None
        self._last = chat.head_id if chat else None
        self._answer: int | None = None  # the one being written, once any of it is

    def write(self, history: History, said: Said) -> None:
        """When it raises it may be tried again, and writes nothing twice."""
        match said:
            case Asked():
                message = self._asked(history, said)
                self._chat_id, self._last, self._answer = message.chat_id, message.id, None
            case Answered() if self._chat_id is not None:
                self._save(history, self._chat_id, said.answer)
            case Left():
                self._leave()

    def _asked(self, history: History, asked: Asked) -> StoredMessage:
        """A chat that another program deleted begins again."""
        if self._chat_id is not None:
            with suppress(NoSuchChat):
                place = NewMessage(self._chat_id, "user", asked.question, self._last, attachments=asked.attachments)
                return history.append(place)
        return history.begin(asked.chat, asked.question, attachments=asked.attachments)

    def _save(self, history: History, chat_id: str, answer: Answer) -> None:
        try:
            if self._answer is None:
                place = NewMessage(chat_id, "assistant", "", self._last, status="partial")
                self._answer = self._last = history.append(place).id
            history.save(self._answer, answer)
        except NoSuchChat as fault:
            self._leave()
            raise NoSuchChat(fault.message, hint="Your next message begins a new chat.") from fault

    def _leave(self) -> None:
        self._chat_id = self._last = self._answer = None
