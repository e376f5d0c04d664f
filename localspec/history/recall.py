"""Finds the chat to continue. Knows the history, and nothing about how a chat is shown."""

from __future__ import annotations

from localspec.core.errors import HistoryError, NoSuchChat
from localspec.history.records import OpenChat
from localspec.history.store import History


def recall(beginning: str | None = None) -> OpenChat:
    """The chat whose id begins with `beginning`, or the one used last. Works on a read-only history, too."""
    with History(reading=True) as history:
        if history.notices:  # a new one, without chats: what the user must know is that the old one was damaged
            raise HistoryError(history.notices[0].message, hint=history.notices[0].hint)
        found = history.latest() if beginning is None else history.find_chat(beginning)
        if found is None:
            raise NoSuchChat("There is no chat to continue.", hint="Start one: localspec chat")
        return history.open(found.id)
