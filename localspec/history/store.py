"""The saved chats: create, continue, answer, branch, search and delete. Knows no screen and no engine.

Every method may be called from any thread, and from any number of programs on one file. When it returns, its data is
on disk; when it raises (HistoryError, NoSuchChat, in one sentence), nothing is changed.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from msgspec.structs import replace

from localspec.core import paths
from localspec.core.errors import NoSuchChat
from localspec.core.events import Step
from localspec.core.process import Process
from localspec.history import rows
from localspec.history.open_file import open_database
from localspec.history.provenance import unpack
from localspec.history.records import (
    STORED_AS,
    Attachment,
    Changes,
    HistoryTotals,
    NewChat,
    OpenChat,
    SavedAnswer,
    SearchHit,
    StoredChat,
    StoredMessage,
    Unsent,
    gone,
    now,
)
from localspec.history.search import find
from localspec.history.totals import totals
from localspec.history.tree import Tree

NEWEST_FIRST = "ORDER BY pinned DESC, updated_at DESC, rowid DESC LIMIT ?"


class History:
    """One file of chats. `notices` says what was done to open it; with `reading`, a read-only file is opened, too."""

    def __init__(self, path: Path | None = None, *, reading: bool = False) -> None:
        self.path = path or paths.history_file()
        self._database, self.notices = open_database(self.path, reading=reading)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    @property
    def is_read_only(self) -> bool:
        """True when it could only be opened for reading: later changes by other programs may not be seen."""
        return self._database.is_read_only

    def chats(self, *, limit: int = -1) -> list[StoredChat]:
        """The chats, pinned ones first, then newest first; -1 is all of them."""
        return [rows.as_chat(row) for row in self._database.read(f"{rows.CHAT} {NEWEST_FIRST}", (limit,))]

    def latest(self) -> StoredChat | None:
        """The chat used last, which --continue opens."""
        found = self._database.read(f"{rows.CHAT} ORDER BY updated_at DESC, rowid DESC LIMIT 1")
        return rows.as_chat(found[0]) if found else None

    def find_chat(self, beginning: str) -> StoredChat:
        """The chat with this id, or the only one whose id begins with it."""
        typed = beginning.strip().lower()
        query = f"{rows.CHAT} WHERE substr(id, 1, ?) = ? AND ? <> '' LIMIT 2"
        found = self._database.read(query, (len(typed), typed, typed))
        if len(found) == 1:
            return rows.as_chat(found[0])
        problem = "Several chat ids begin with" if found else "There is no chat"
        raise NoSuchChat(f"{problem} '{beginning}'.", hint="List the chats: localspec history ls")

    def open(self, chat_id: str) -> OpenChat:
        """The chat with every message, without rounds: three queries, however long it is."""
        with self._database.snapshot():
            found = self._database.read(f"{rows.CHAT} WHERE id = ?", (chat_id,))
            messages = self._database.read(rows.MESSAGES, (chat_id,))
            attached = self._database.read(rows.ATTACHMENTS, (chat_id,))
        if not found:
            raise NoSuchChat(f"There is no chat '{chat_id}'.", hint="List the chats: localspec history ls")
        return OpenChat(rows.as_chat(found[0]), Tree(rows.as_messages(messages, attached)))

    def begin(
        self,
        chat: NewChat,
        question: str,
        *,
        attachments: tuple[Attachment, ...] = (),
        sends: tuple[int, ...] = (),
        reason: str = "",
    ) -> StoredMessage:
        """Creates a chat with its first question: an empty one is never saved. `sends`: ids of what was kept unsent and
        is this. `reason`: why it has no answer, until it has one."""

        def work(db: sqlite3.Connection) -> StoredMessage:
            chat_id, at = rows.new_id(), now()
            db.execute(
                "INSERT INTO conversation(id, title, created_at, updated_at, model_key, preset, system) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (chat_id, chat.title, at, at, chat.model_key, chat.preset, chat.system),
            )
            rows.drop_unsent(db, sends)
            asked = StoredMessage.unsaved(chat_id, "user", question, attachments=attachments)
            return rows.insert_message(db, replace(asked, reason=reason))

        return self._database.write(work)

    def append(self, message: StoredMessage, *, sends: tuple[int, ...] = ()) -> StoredMessage:
        """Adds the message below its parent, beside others for a retry or an edit, and makes it the chat's head.
        `sends`: ids of what was kept unsent and is this."""

        def work(db: sqlite3.Connection) -> StoredMessage:
            rows.drop_unsent(db, sends)
            return rows.insert_message(db, message)

        return self._database.write(work)

    def save(self, message_id: int, answer: SavedAnswer) -> None:
        """Replaces what was saved of an answer by the answer so far, or by the finished one."""
        self._database.write(lambda db: rows.save_answer(db, message_id, answer))

    def explain(self, message_id: int, reason: str) -> None:
        """Keeps why a question has no answer; nothing where it has one by now, or is deleted."""
        self._database.write(lambda db: db.execute(rows.EXPLAIN, (reason, message_id)))

    def steps(self, message_id: int) -> tuple[Step, ...]:
        """Every round of an answer, for the token view; none for a message that no model wrote."""
        found = self._database.read("SELECT steps FROM generation WHERE message_id = ?", (message_id,))
        return unpack(found[0]["steps"]) if found else ()

    def set_head(self, chat_id: str, message_id: int | None) -> None:
        """Sets the branch that the chat shows when it is opened again; None is before its first message."""

        def work(db: sqlite3.Connection) -> None:
            rows.check_parent(db, chat_id, message_id)
            db.execute("UPDATE conversation SET head_id = ? WHERE id = ?", (message_id, chat_id))

        self._database.write(work)

    def change(self, chat_id: str, **changes: Unpack[Changes]) -> None:
        """Changes the named fields only; renaming or pinning a chat does not make it the one used last."""
        assert changes.keys() <= Changes.__annotations__.keys()
        assignments = ", ".join(f"{STORED_AS.get(name, name)} = ?" for name in changes)

        def work(db: sqlite3.Connection) -> None:
            values = (*changes.values(), chat_id)
            if not db.execute(f"UPDATE conversation SET {assignments} WHERE id = ?", values).rowcount:
                raise gone("chat")

        if changes:
            self._database.write(work)

    def delete(self, *chat_ids: str) -> None:
        """Deletes the chats with all their messages, or none of them; the data is overwritten on disk."""

        def work(db: sqlite3.Connection) -> None:
            for chat_id in chat_ids:
                if not db.execute("DELETE FROM conversation WHERE id = ?", (chat_id,)).rowcount:
                    raise gone("chat")
            if not rows.has_chats(db):
                db.execute("DELETE FROM unsent")

        self._database.erase(work)

    def keep_unsent(
        self, chat_id: str | None, *unsent: Unsent, instead_of: tuple[int, ...] = (), writer: Process | None = None
    ) -> tuple[int, ...]:
        """Keeps messages for this chat, or for a new one where that is gone or not begun, in place of those with these
        ids; returns the new ids. `writer`: the program in whose prompt they are; None for what was left."""

        def work(db: sqlite3.Connection) -> tuple[int, ...]:
            rows.drop_unsent(db, instead_of)
            return tuple(rows.insert_unsent(db, chat_id, one, writer) for one in unsent)

        kept = self._database.write(work)
        if instead_of and not unsent:  # whoever deletes it wants it gone
            self._database.empty_log()
        return kept

    def unsent(self, chat_id: str | None, server: str = "") -> tuple[Unsent, ...]:
        """What was not sent in this chat, or to this server in none, and is in no other program's prompt."""
        found = self._database.read(rows.UNSENT, (chat_id, server))
        return tuple(rows.as_unsent(row) for row in found if not rows.is_elsewhere(row))

    def delete_message(self, message_id: int) -> None:
        """Deletes the message and all below it, on every branch."""
        self._database.erase(lambda db: rows.delete_branch(db, message_id))

    def search(self, query: str, *, limit: int = 50) -> list[SearchHit]:
        """The titles, then the messages and attachments, that contain every word of the query, newest first."""
        return find(self._database, query, limit)

    def copies(self) -> list[Path]:
        """The copies made before a migration, and damaged files: none is ever deleted."""
        return sorted(self.path.parent.glob(f"{self.path.name}.*-*"))

    def totals(self) -> HistoryTotals:
        return totals(self._database)
