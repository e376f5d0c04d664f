"""The tables, as migrations from each version to the next: appended, never edited. Knows nothing of files or records.

`PRAGMA user_version` counts the migrations that a file has had. All missing ones are applied in one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

APPLICATION_ID = 0x6C737063  # "lspc": so that another program's history.db is not taken for ours
Migration = Callable[[sqlite3.Connection], None]
MIGRATIONS: list[Migration] = []


def migration(step: Migration) -> Migration:
    MIGRATIONS.append(step)
    return step


def version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def migrate(db: sqlite3.Connection) -> None:
    """Migrates from any older version to this one, all or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        for step in MIGRATIONS[version(db) :]:
            step(db)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@migration
def m001_chats(db: sqlite3.Connection) -> None:
    """Creates chats, the tree of their messages, the generation of each answer, and a full-text index.

    Answers are not deleted by cascade: SQLite follows one a thousand messages deep, and a chat can be longer.
    AUTOINCREMENT: a program that still holds a deleted message's id must not write into another message.
    The statistics are kept whole; the columns beside them are views into them, for SQL.
    """
    for statement in (CONVERSATION, MESSAGE, GENERATION, ATTACHMENT, *INDEXES, *WORDS):
        db.execute(statement)


@migration
def m002_titles(db: sqlite3.Connection) -> None:
    """Indexes the titles, too: a renamed chat is found by its name."""
    for statement in TITLES:
        db.execute(statement)


@migration
def m003_full_contexts(db: sqlite3.Connection) -> None:
    """Adds what to do when a chat outgrows the context, and how many of its oldest turns are left out."""
    for column in OUTGROWN:
        db.execute(f"ALTER TABLE conversation ADD COLUMN {column}")


@migration
def m004_nothing_is_put_away(db: sqlite3.Connection) -> None:
    """Drops the archive: a chat is listed until it is deleted."""
    db.execute("ALTER TABLE conversation DROP COLUMN archived")


@migration
def m005_attachments(db: sqlite3.Connection) -> None:
    """Indexes attachments, too: a word in a file or a long paste is found."""
    for statement in ATTACHED:
        db.execute(statement)


@migration
def m006_edited_answers(db: sqlite3.Connection) -> None:
    """Adds how many of an answer's first characters the user wrote."""
    db.execute("ALTER TABLE message ADD COLUMN edited INTEGER NOT NULL DEFAULT 0 CHECK(edited >= 0)")


@migration
def m007_unsent_messages(db: sqlite3.Connection) -> None:
    """Creates the messages that were written and not sent, each of its chat or of none yet."""
    for statement in UNSENT:
        db.execute(statement)


@migration
def m008_drafters(db: sqlite3.Connection) -> None:
    """Adds a view of what each kind of drafter proposed for an answer; one that was written before has no row."""
    db.execute(DRAFTED)


@migration
def m009_unsent_to_a_server(db: sqlite3.Connection) -> None:
    """Adds to which server a message that was not sent would have gone."""
    db.execute("ALTER TABLE unsent ADD COLUMN server TEXT NOT NULL DEFAULT ''")


@migration
def m010_unsent_while_it_is_written(db: sqlite3.Connection) -> None:
    """Adds which message it edits, and in the prompt of which program it is now."""
    for column in ("edits INTEGER", "pid INTEGER", "pid_began REAL"):
        db.execute(f"ALTER TABLE unsent ADD COLUMN {column}")


@migration
def m011_reasons(db: sqlite3.Connection) -> None:
    """Adds why an answer failed, or why a question has none."""
    db.execute("ALTER TABLE message ADD COLUMN reason TEXT NOT NULL DEFAULT ''")


CONVERSATION = """
CREATE TABLE conversation(
  id TEXT PRIMARY KEY, title TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
  model_key TEXT NOT NULL, preset TEXT, system TEXT, head_id INTEGER,
  archived INTEGER NOT NULL DEFAULT 0, pinned INTEGER NOT NULL DEFAULT 0) STRICT
"""
MESSAGE = """
CREATE TABLE message(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  conversation_id TEXT NOT NULL REFERENCES conversation(id) ON DELETE CASCADE,
  parent_id INTEGER REFERENCES message(id) DEFERRABLE INITIALLY DEFERRED,
  role TEXT NOT NULL CHECK(role IN ('system', 'user', 'assistant')),
  content TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'done' CHECK(status IN ('done', 'partial', 'stopped', 'length', 'error')),
  created_at TEXT NOT NULL) STRICT
"""
SUMS = (
    "prompt_n cached_n prompt_ms ttft_ms predicted_n predicted_ms draft_kind draft_rounds plain_rounds draft_n "
    "draft_n_accepted draft_n_rejected draft_n_ignored baseline_tps baseline_source speedup peak_bytes finish_reason"
)
VIEWS = ", ".join(  # ANY, and nothing for broken JSON: a figure that is odd must not make the file a damaged one
    f"{name} ANY AS (CASE WHEN json_valid(stats_json) THEN json_extract(stats_json, '$.{name}') END) VIRTUAL"
    for name in SUMS.split()
)
GENERATION = f"""
CREATE TABLE generation(
  message_id INTEGER PRIMARY KEY REFERENCES message(id) ON DELETE CASCADE,
  target TEXT NOT NULL, target_sha TEXT, quant TEXT, device TEXT, draft TEXT,
  params_json TEXT NOT NULL, versions_json TEXT NOT NULL, stats_json TEXT NOT NULL, steps BLOB,
  {VIEWS}) STRICT
"""
ATTACHMENT = """
CREATE TABLE attachment(
  id INTEGER PRIMARY KEY, message_id INTEGER NOT NULL REFERENCES message(id) ON DELETE CASCADE,
  path TEXT, mime TEXT, sha256 TEXT, text TEXT) STRICT
"""
INDEXES = (
    "CREATE INDEX message_conv ON message(conversation_id, parent_id)",
    "CREATE INDEX message_parent ON message(parent_id)",
    "CREATE INDEX attachment_message ON attachment(message_id)",
)
WORDS = (
    "CREATE VIRTUAL TABLE message_fts USING fts5(content, content='message', content_rowid='id', tokenize='unicode61')",
    """CREATE TRIGGER message_added AFTER INSERT ON message BEGIN
         INSERT INTO message_fts(rowid, content) VALUES (new.id, new.content);
       END""",
    """CREATE TRIGGER message_removed AFTER DELETE ON message BEGIN
         INSERT INTO message_fts(message_fts, rowid, content) VALUES ('delete', old.id, old.content);
       END""",
    """CREATE TRIGGER message_rewritten AFTER UPDATE OF content ON message BEGIN
         INSERT INTO message_fts(message_fts, rowid, content) VALUES ('delete', old.id, old.content);
         INSERT INTO message_fts(rowid, content) VALUES (new.id, new.content);
       END""",
)
TITLES = (
    "CREATE VIRTUAL TABLE title_fts USING fts5(title, conversation_id UNINDEXED, tokenize='unicode61')",
    """CREATE TRIGGER conversation_added AFTER INSERT ON conversation BEGIN
         INSERT INTO title_fts(title, conversation_id) VALUES (new.title, new.id);
       END""",
    """CREATE TRIGGER conversation_removed AFTER DELETE ON conversation BEGIN
         DELETE FROM title_fts WHERE conversation_id = old.id;
       END""",
    """CREATE TRIGGER conversation_renamed AFTER UPDATE OF title ON conversation BEGIN
         UPDATE title_fts SET title = new.title WHERE conversation_id = new.id;
       END""",
    "INSERT INTO title_fts(title, conversation_id) SELECT title, id FROM conversation",
)
OUTGROWN = (
    "when_full TEXT CHECK(when_full IN ('stop', 'drop-oldest'))",
    "untold INTEGER NOT NULL DEFAULT 0 CHECK(untold >= 0)",
)
ATTACHED = (
    """CREATE VIRTUAL TABLE attachment_fts
         USING fts5(text, content='attachment', content_rowid='id', tokenize='unicode61')""",
    """CREATE TRIGGER attachment_added AFTER INSERT ON attachment BEGIN
         INSERT INTO attachment_fts(rowid, text) VALUES (new.id, new.text);
       END""",
    """CREATE TRIGGER attachment_removed AFTER DELETE ON attachment BEGIN
         INSERT INTO attachment_fts(attachment_fts, rowid, text) VALUES ('delete', old.id, old.text);
       END""",
    "INSERT INTO attachment_fts(attachment_fts) VALUES ('rebuild')",
)
UNSENT = (
    """CREATE TABLE unsent(
         id INTEGER PRIMARY KEY, conversation_id TEXT REFERENCES conversation(id) ON DELETE CASCADE,
         content TEXT NOT NULL, attachments_json TEXT NOT NULL) STRICT""",
    "CREATE INDEX unsent_conv ON unsent(conversation_id)",
)
DRAFTED = """
CREATE VIEW drafted AS
SELECT message_id, kind.key AS drafter, json_extract(kind.value, '$.drafted') AS drafted,
  json_extract(kind.value, '$.accepted') AS accepted, json_extract(kind.value, '$.rejected') AS rejected
FROM generation, json_each(iif(json_valid(stats_json), stats_json, '{}'), '$.by_drafter') AS kind
WHERE kind.type = 'object'
"""
TABLES = {"conversation", "message", "generation", "attachment", "message_fts", "title_fts", "attachment_fts", "unsent"}
