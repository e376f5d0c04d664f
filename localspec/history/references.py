"""The texts that a look-up may copy from beside a conversation, made of a chat's messages; and the kept chats' own.

All are bounded, the newest first. Nothing is written: a text that leaves the history is not found any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from localspec.core.requests import Message, Reference
from localspec.history.attachments import with_attachments
from localspec.history.records import Attachment, OpenChat

if TYPE_CHECKING:
    from localspec.history.store import History

MOST_CHARACTERS = 100_000  # of all texts of a request: more than the engine keeps of them in ids
LEAD_MESSAGES, LEAD_CHARACTERS = 3, 1000  # before an answer, of each: it is recognised by the last few tokens
MOST_CHATS = 32


def answer(kind: Literal["branch", "chat"], name: str, before: Sequence[Message], text: str) -> Reference:
    """An answer, and the end of what it follows: a question, with the turn before it."""
    lead = [Message(one.role, one.content[-LEAD_CHARACTERS:]) for one in before[-LEAD_MESSAGES:]]
    return Reference(kind, name, text, tuple(lead))


def file(attachment: Attachment) -> Reference:
    return Reference("file", attachment.path or "Pasted text", attachment.text or "")


def bounded(references: Iterable[Reference]) -> tuple[Reference, ...]:
    """The first of them, up to MOST_CHARACTERS in all; the last text is cut."""
    kept: list[Reference] = []
    left = MOST_CHARACTERS
    for one in references:
        left -= sum(len(message.content) for message in one.before)
        if left <= 0:
            break
        if text := one.text[:left]:
            kept.append(Reference(one.kind, one.name, text, one.before))
            left -= len(text)
    return tuple(kept)


def kept_chats(history: History, running: str | None = None) -> tuple[Reference, ...]:
    """The answers of the chats used last, but the running one, as they were left; bounded."""
    newest = sorted(history.chats(limit=2 * MOST_CHATS), key=lambda chat: chat.updated_at, reverse=True)
    ids = [chat.id for chat in newest if chat.id != running][:MOST_CHATS]
    return bounded(one for chat_id in ids for one in answers(history.open(chat_id)))


def answers(opened: OpenChat) -> Iterator[Reference]:
    """The answers of a kept chat's branch, the last one first."""
    before: list[Message] = []
    found: list[Reference] = []
    for asked, answered in pairwise(opened.to_read):
        if (asked.role, answered.role) == ("user", "assistant") and answered.content:
            before.append(Message("user", with_attachments(asked.content, asked.attachments)))
            found.append(answer("chat", opened.chat.title, before, answered.content))
            before.append(Message("assistant", answered.content))
    return reversed(found)
