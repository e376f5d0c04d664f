"""Converts rows of the tables to records, and records to rows. Knows the columns, not when they are read.

A damaged field costs that detail, never the message.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from localspec.core.events import Stats
from localspec.core.process import Process
from localspec.history.provenance import pack
from localspec.history.records import (
    ID_LENGTH,
    Attachment,
    Generation,
    SavedAnswer,
    SettingValue,
    StoredChat,
    StoredMessage,
    Unsent,
    gone,
    now,
)

T = TypeVar("T")
LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: none is taken for another

PLAIN = ("id", "chat_id", "parent_id", "role", "content", "status", "created_at", "edited", "reason")
IDENTITY = ("target", "target_sha", "quant", "device", "draft")

CHAT = """
SELECT id, title, created_at, updated_at, model_key, preset, system, head_id, pinned, when_full,
  untold AS turns_left_out,
  (SELECT count(*) FROM message WHERE conversation_id = conversation.id) AS num_messages
FROM conversation
"""
MESSAGES = """
SELECT id, conversation_id AS chat_id, parent_id, role, content, status, created_at, edited, reason,
  target, target_sha, quant, device, draft, params_json, versions_json, stats_json
FROM message LEFT JOIN generation ON generation.message_id = message.id
WHERE conversation_id = ?
"""
INSERT = """
INSERT INTO message(conversation_id, parent_id, role, content, status, created_at, edited, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
EXPLAIN = """
UPDATE message SET reason = ? WHERE id = ? AND role = 'user'
AND NOT EXISTS (SELECT 1 FROM message AS answer WHERE answer.parent_id = message.id AND answer.role = 'assistant')
"""
OF_CHAT = (
    "conversation_id IS ? AND (conversation_id IS NOT NULL OR server = ?)"  # what was written for one goes to no other
)
UNSENT = f"""
SELECT id, content, attachments_json, server, pid, pid_began,
  (SELECT message.id FROM message WHERE message.id = edits AND conversation_id = unsent.conversation_id) AS edits
FROM unsent WHERE {OF_CHAT} ORDER BY id
"""
KEEP_UNSENT = """
INSERT INTO unsent(conversation_id, content, attachments_json, server, edits, pid, pid_began)
VALUES ((SELECT id FROM conversation WHERE id = ?), ?, ?, ?, ?, ?, ?)
"""
ATTACHMENTS = """
SELECT message_id, path, mime, sha256, text FROM attachment
WHERE message_id IN (SELECT id FROM message WHERE conversation_id = ?) ORDER BY id
"""
SAVE_GENERATION = """
INSERT INTO generation(message_id, target, target_sha, quant, device, draft,
  params_json, versions_json, stats_json, steps) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT(message_id) DO UPDATE SET target = excluded.target, target_sha = excluded.target_sha,
  quant = excluded.quant, device = excluded.device, draft = excluded.draft, params_json = excluded.params_json,
  versions_json = excluded.versions_json, stats_json = excluded.stats_json, steps = excluded.steps
"""
BELOW = """
WITH RECURSIVE below(id) AS (
  VALUES (?) UNION SELECT message.id FROM message JOIN below ON message.parent_id = below.id)
"""


def new_id() -> str:
    """A random id, short enough to type; ten thousand chats have two alike with a chance of one in twenty million."""
    return "".join(secrets.choice(LETTERS) for _ in range(ID_LENGTH))


def as_chat(row: sqlite3.Row) -> StoredChat:
    return StoredChat(**{**dict(row), "pinned": bool(row["pinned"])})


def as_messages(rows: Iterable[sqlite3.Row], attached: Iterable[sqlite3.Row]) -> list[StoredMessage]:
    attachments: defaultdict[int, tuple[Attachment, ...]] = defaultdict(tuple)
    for message_id, *values in attached:
        attachments[message_id] += (Attachment(*values),)
    return [
        StoredMessage(**named(row, PLAIN), attachments=attachments[row["id"]], generation=as_generation(row))
        for row in rows
    ]


def as_generation(row: sqlite3.Row) -> Generation | None:
    if row["target"] is None:
        return None
    return Generation(
        **named(row, IDENTITY),
        params=decoded(row["params_json"], dict[str, SettingValue], {}),
        versions=decoded(row["versions_json"], dict[str, str], {}),
        stats=decoded(row["stats_json"], Stats, Stats()),
    )


def named(row: sqlite3.Row, columns: tuple[str, ...]) -> dict[str, Any]:  # as the record of that name types them
    return {column: row[column] for column in columns}


def decoded(text: str, kind: type[T], otherwise: T) -> T:
    with suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(text, type=kind)
    return otherwise


def encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()


def insert_message(db: sqlite3.Connection, message: StoredMessage) -> StoredMessage:
    """Adds the message below its parent and makes it the chat's head. A question that has an answer needs no reason
    for having none."""
    at = now()
    check_parent(db, message.chat_id, message.parent_id)
    row = (message.chat_id, message.parent_id, message.role, message.content, message.status, at)
    added = db.execute(INSERT, (*row, message.edited, message.reason))
    message_id = int(added.lastrowid or 0)
    if message.role == "assistant":
        db.execute("UPDATE message SET reason = '' WHERE id = ? AND role = 'user'", (message.parent_id,))
    for file in message.attachments:
        db.execute(
            "INSERT INTO attachment(message_id, path, mime, sha256, text) VALUES (?, ?, ?, ?, ?)",
            (message_id, file.path, file.mime, file.sha256, file.text),
        )
    db.execute("UPDATE conversation SET head_id = ?, updated_at = ? WHERE id = ?", (message_id, at, message.chat_id))
    return StoredMessage(
        message_id, *row, attachments=message.attachments, edited=message.edited, reason=message.reason
    )


def check_parent(db: sqlite3.Connection, chat_id: str, parent_id: int | None) -> None:
    """NoSuchChat where another program has deleted the chat, or the message that this one answers."""
    if not db.execute("SELECT 1 FROM conversation WHERE id = ?", (chat_id,)).fetchone():
        raise gone("chat")
    parent = db.execute("SELECT 1 FROM message WHERE id = ? AND conversation_id = ?", (parent_id, chat_id)).fetchone()
    if parent_id is not None and not parent:
        raise gone("message")


def save_answer(db: sqlite3.Connection, message_id: int, answer: SavedAnswer) -> None:
    updated = db.execute(
        "UPDATE message SET content = ?, status = ?, reason = ? WHERE id = ? AND role = 'assistant' "
        "RETURNING conversation_id",
        (answer.text, answer.status, answer.reason, message_id),
    ).fetchone()
    if updated is None:
        raise gone("answer")
    made = answer.generation
    identity = (made.target, made.target_sha, made.quant, made.device, made.draft)
    rest = (encoded(made.params), encoded(made.versions), encoded(made.stats), pack(answer.steps))
    db.execute(SAVE_GENERATION, (message_id, *identity, *rest))
    db.execute("UPDATE conversation SET updated_at = ? WHERE id = ?", (now(), updated[0]))


def delete_branch(db: sqlite3.Connection, message_id: int) -> None:
    """Deletes the message and all below it; a head among them moves to the newest message that is left in the chat."""
    found = db.execute("SELECT conversation_id, parent_id FROM message WHERE id = ?", (message_id,)).fetchone()
    if found is None:
        raise gone("message")
    chat_id, parent_id = found
    db.execute(f"{BELOW} DELETE FROM message WHERE id IN below", (message_id,))
    db.execute(
        "UPDATE conversation SET head_id = ?, updated_at = ? WHERE id = ? "
        "AND NOT EXISTS (SELECT 1 FROM message WHERE message.id = head_id)",
        (newest_below(db, chat_id, parent_id), now(), chat_id),
    )


def newest_below(db: sqlite3.Connection, chat_id: str, parent_id: int | None) -> int | None:
    """The message to show next: the end of the sibling continued last, else the parent."""
    if parent_id is None:
        query, value = "SELECT max(id) FROM message WHERE conversation_id = ?", chat_id
        return db.execute(query, (value,)).fetchone()[0]  # type: ignore[no-any-return]
    return db.execute(f"{BELOW} SELECT max(id) FROM below", (parent_id,)).fetchone()[0]  # type: ignore[no-any-return]


def has_chats(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT EXISTS (SELECT 1 FROM conversation)").fetchone()[0])


def insert_unsent(db: sqlite3.Connection, chat_id: str | None, unsent: Unsent, writer: Process | None) -> int:
    """Adds it, and returns its id. `writer`: the program in whose prompt it is, None for one that was left."""
    row = (chat_id, unsent.content, encoded(unsent.attachments), unsent.server, unsent.edits)
    added = db.execute(KEEP_UNSENT, (*row, *((writer.pid, writer.began) if writer else (None, None))))
    return int(added.lastrowid or 0)


def drop_unsent(db: sqlite3.Connection, ids: Iterable[int]) -> None:
    """Deletes these, but what another program has written since: an id is given away again."""
    for each in ids:
        found = db.execute("SELECT pid, pid_began FROM unsent WHERE id = ?", (each,)).fetchone()
        if found is not None and not is_elsewhere(found):
            db.execute("DELETE FROM unsent WHERE id = ?", (each,))


def is_elsewhere(row: sqlite3.Row) -> bool:
    """Whether another program has it in its prompt."""
    return row["pid"] not in (None, os.getpid()) and Process(row["pid"], row["pid_began"] or 0.0).is_alive


def as_unsent(row: sqlite3.Row) -> Unsent:
    attached = decoded(row["attachments_json"], tuple[Attachment, ...], ())
    return Unsent(row["content"], attached, row["server"], row["edits"], row["id"])
