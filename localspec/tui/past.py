"""A chat from the history as it stands when it is opened again. Knows records and widgets, and no database."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from localspec.history import OpenChat, Status, StoredMessage, told
from localspec.requests import Message
from localspec.sanitize import one_line
from localspec.tui.conversation import Conversation
from localspec.tui.message import Answer, Note, Question
from localspec.tui.stats_line import summary
from localspec.tui.welcome import Welcome

MESSAGES_SHOWN = 20  # a screen or two; the model is told all of them

ENDED: dict[Status, str] = {"stopped": "-stopped", "error": "-failed"}


def conversation(past: OpenChat | None, system: str | None) -> Conversation:
    """Of a chat that goes on, or of a new one."""
    goes_on = Conversation(system)
    if past is not None:
        goes_on.recall(
            past.chat.system, (Message(said.role, told(said.content, said.attachments)) for said in past.branch)
        )
    return goes_on


def remembered(past: OpenChat | None) -> Iterator[Widget]:
    """What a transcript begins with: the chat's title and last messages, or how to begin one."""
    if past is None:
        yield Welcome()
        return
    branch = past.branch
    hidden = max(0, len(branch) - MESSAGES_SHOWN)
    title = f"{one_line(past.chat.title) or 'A chat without a title'} · begun {past.chat.created_at[:10]}"
    yield Note(f"{title} · {hidden} earlier messages are not shown" if hidden else title)
    for message in branch[hidden:]:
        if message.role == "user":
            yield Question(message.content, queued=False, attachments=message.attachments)
        elif message.role == "assistant":
            yield answer(message, past.chat.model_key)


def answer(message: StoredMessage, model_key: str) -> Answer:
    made = message.generation
    shown = Answer(made.target if made else model_key, message.content)
    if message.status == "partial":
        shown.close("interrupted: the program ended before the answer did", "-stopped")
    elif made is not None:
        shown.close(summary(made.stats), ENDED.get(message.status, "-done"))
    return shown
