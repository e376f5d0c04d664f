"""Lists the chats without creating, repairing, migrating or moving anything: for lists that are offered unasked."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from localspec.core import paths
from localspec.history import rows, schema
from localspec.history.database import connect_read_only
from localspec.history.records import StoredChat
from localspec.history.store import NEWEST_FIRST


def peek(path: Path | None = None, *, limit: int = -1) -> list[StoredChat]:
    """The chats; none if there is no history, or it is damaged, of another version or unreadable."""
    try:
        with closing(connect_read_only(path or paths.folder("data") / paths.HISTORY)) as db:
            if schema.version(db) != len(schema.MIGRATIONS):
                return []
            query = f"{rows.CHAT} {NEWEST_FIRST}"
            return [rows.as_chat(row) for row in db.execute(query, (limit,)).fetchall()]
    except (OSError, sqlite3.Error):
        return []
