"""The chats that were kept, for the parts of the screen that show them: listed, found, opened, changed.

Every call may wait for the disk, so none belongs on the screen's thread; each raises one sentence. Knows no widgets.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from localspec.core.errors import HistoryError, NoSuchChat
from localspec.core.events import Notice
from localspec.core.requests import Reference
from localspec.history import Format, OpenChat, SearchHit, StoredChat, export
from localspec.history.references import kept_chats

if TYPE_CHECKING:
    from localspec.history import History

NOT_KEPT = "Chats are neither saved nor listed: localspec was started with --no-history."


class ChatStore:
    """A connection of its own to the history, opened at the first request. `tell` receives notices about repairs.

    One that cannot be written is opened anew each time: it may have become what can be.
    """

    def __init__(self, *, kept: bool, tell: Callable[[Notice], object]) -> None:
        self.kept = kept
        self._tell = tell
        self._lock = Lock()
        self._history: History | None = None

    def chats(self, limit: int) -> list[StoredChat]:
        """Pinned ones first, then those that were used last."""
        return self._open().chats(limit=limit)

    def find(self, query: str) -> list[SearchHit]:
        return self._open().search(query)

    def open(self, chat_id: str, message_id: int | None = None) -> OpenChat:
        """The chat as it was left; or on the branch with this message, where it is opened the next time too."""
        history = self._open()
        opened = history.open(chat_id)
        if message_id not in opened.tree.nodes or message_id in {utterance.id for utterance in opened.branch}:
            return opened
        head = opened.tree.tip(message_id)
        with suppress(HistoryError):  # a history that cannot be written can still be read
            history.set_head(chat_id, head)
        return OpenChat(msgspec.structs.replace(opened.chat, head_id=head), opened.tree)

    def answers(self, running: str | None) -> tuple[Reference, ...]:
        """What was answered in other chats, the newest first."""
        return kept_chats(self._open(), running)

    def rename(self, chat_id: str, title: str) -> None:
        self._open().change(chat_id, title=title)

    def pin(self, chat_id: str) -> bool:
        """Pins the chat, or unpins it; whether it is pinned now."""
        history = self._open()
        history.change(chat_id, pinned=(pinned := not history.find_chat(chat_id).pinned))
        return pinned

    def delete(self, *chat_ids: str) -> None:
        history = self._open()
        for chat_id in chat_ids:
            with suppress(NoSuchChat):  # another program was faster
                history.delete(chat_id)

    def text(self, chat_id: str, kind: Format) -> tuple[str, OpenChat]:
        """The text of a file with this chat, and the chat."""
        history = self._open()
        opened = history.open(chat_id)
        return export(opened, history.steps, kind), opened

    def close(self) -> None:
        if self._history is not None:
            self._history.close()

    def _open(self) -> History:
        from localspec.history import History  # opens SQLite

        if not self.kept:
            raise HistoryError(NOT_KEPT)
        with self._lock:
            if self._history is None or self._history.is_read_only:
                self._history = History(reading=True)
                for notice in self._history.notices:
                    self._tell(notice)
            return self._history
