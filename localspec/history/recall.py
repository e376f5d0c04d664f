"""Finds the chat to go on with. Knows the history, and nothing about how a chat is shown."""

from __future__ import annotations

from localspec.core.errors import HistoryError, NoSuchChat
from localspec.history.records import OpenChat
from localspec.history.store import History


def recall(beginning: str | None = None) -> OpenChat:
    """The chat whose id begins so; None is the one that was used last. To read it needs no leave to write."""
    with History(reading=True) as history:
        if history.notices:  # it is new, and has no chats: the damage to the old one is what the user must know
            raise HistoryError(history.notices[0].message, hint=history.notices[0].hint)
        found = history.latest() if beginning is None else history.find_chat(beginning)
        if found is None:
            raise NoSuchChat("There is no chat to go on with.", hint="Begin one: localspec chat")
        return history.open(found.id)
