"""A chat as it is being said: asked, answered so far, left. Knows where each goes in the history, and no threads."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from localspec.errors import NoSuchChat
from localspec.events import Record
from localspec.history.records import Answer, Chat, Generation, NewChat, NewMessage, StoredMessage
from localspec.history.store import History
from localspec.stats import joined


class Asked(Record, frozen=True):
    """A question was sent. The first of a chat begins it, as `chat` says."""

    chat: NewChat
    question: str


class Answered(Record, frozen=True):
    """The answer to the question before it: so far, in place of what was said of it earlier, or as it ended."""

    answer: Answer


class Continued(Record, frozen=True):
    """The last answer goes on: what is answered next stands behind it, in the same message."""


class Left(Record, frozen=True):
    """The next question begins another chat."""


Said = Asked | Answered | Continued | Left


class Turns:
    """The place in the history where a chat goes on; other programs may have gone on elsewhere in the same one."""

    def __init__(self, chat: Chat | None = None) -> None:
        self._chat_id = chat.id if chat else None
        self._last = chat.head_id if chat else None
        self._answer: int | None = None  # the one being written, once any of it is
        self._begun: Answer | None = None  # what there was of it before it went on

    def write(self, history: History, said: Said) -> None:
        """When it raises it may be tried again, and writes nothing twice."""
        match said:
            case Asked():
                message = self._asked(history, said)
                self._chat_id, self._last, self._answer = message.chat_id, message.id, None
                self._begun = None
            case Answered() if self._chat_id is not None:
                whole = behind(self._begun, said.answer) if self._begun else said.answer
                self._save(history, self._chat_id, whole)
            case Continued() if self._chat_id is not None:
                self._resume(history, self._chat_id)
            case Left():
                self._leave()

    def _asked(self, history: History, asked: Asked) -> StoredMessage:
        """A chat that another program deleted begins again."""
        if self._chat_id is not None:
            with suppress(NoSuchChat):
                return history.append(NewMessage(self._chat_id, "user", asked.question, self._last))
        return history.begin(asked.chat, asked.question)

    def _resume(self, history: History, chat_id: str) -> None:
        said = history.open(chat_id).tree.nodes.get(self._last or 0)
        if said is not None and said.role == "assistant":
            self._begun = Answer(said.content, said.generation or Generation(""), history.steps(said.id))
            self._answer = said.id

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
        self._chat_id = self._last = self._answer = self._begun = None


def behind(first: Answer, then: Answer) -> Answer:
    """Two parts of an answer as one, written by whoever wrote the second."""
    stats = joined(first.generation.stats, then.generation.stats)
    made = msgspec.structs.replace(then.generation, stats=stats)
    return Answer(first.text + then.text, made, (*first.steps, *then.steps))
