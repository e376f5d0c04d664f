"""A chat from the history as it stands when it is opened again. Knows records and widgets, and no database."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from localspec.config.tables import SendKey
from localspec.history import OpenChat, Status, StoredMessage
from localspec.requests import Message
from localspec.sanitize import one_line
from localspec.tui.conversation import Conversation
from localspec.tui.message import Answer, Note, Question
from localspec.tui.stats_line import summary
from localspec.tui.tuning import Tuning
from localspec.tui.welcome import Welcome

MESSAGES_SHOWN = 20  # a screen or two; the model is told all of them

ENDED: dict[Status, str] = {"stopped": "-stopped", "error": "-failed"}


def conversation(past: OpenChat | None, system: str | None, tuning: Tuning) -> Conversation:
    """Of a chat that goes on, or of a new one."""
    goes_on = Conversation(system, tuning=tuning)
    if past is not None:
        goes_on.recall(past.chat.system, (Message(said.role, said.content) for said in past.branch))
    return goes_on


def spoken(past: OpenChat | None) -> list[StoredMessage]:
    """What user and model said, on the branch that is shown."""
    return [message for message in past.branch if message.role != "system"] if past else []


def remembered(past: OpenChat | None, send_key: SendKey) -> Iterator[Widget]:
    """What a transcript begins with: the chat's title and last messages, or how to begin one."""
    if past is None:
        yield Welcome(send_key)
        return
    messages = spoken(past)
    hidden = max(0, len(messages) - MESSAGES_SHOWN)
    yield Note(opening(past, hidden))
    yield from (shown(message, past.chat.model_key) for message in messages[hidden:])


def opening(past: OpenChat, hidden: int) -> str:
    title = f"{one_line(past.chat.title) or 'A chat without a title'} · begun {past.chat.created_at[:10]}"
    return f"{title} · {hidden} earlier messages are not shown" if hidden else title


def shown(message: StoredMessage, model_key: str) -> Question | Answer:
    return Question(message.content, queued=False) if message.role == "user" else answer(message, model_key)


def answer(message: StoredMessage, model_key: str) -> Answer:
    made = message.generation
    shown = Answer(made.target if made else model_key, message.content)
    if message.status == "partial":
        shown.close("interrupted: the program ended before the answer did", "-stopped")
    elif made is not None:
        shown.close(summary(made.stats), ENDED.get(message.status, "-done"))
    return shown
