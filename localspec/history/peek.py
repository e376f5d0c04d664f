"""Looks at the history as it is: nothing is made, mended, migrated or moved. For lists that are offered unasked."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from localspec.core import paths
from localspec.history import rows, schema
from localspec.history.database import look_at
from localspec.history.records import Chat
from localspec.history.store import NEWEST_FIRST


def peek(path: Path | None = None, *, limit: int = -1) -> list[Chat]:
    """All chats; none where there is no history, or it is damaged, of another version or out of reach."""
    try:
        with closing(look_at(path or paths.folder("data") / paths.HISTORY)) as db:
            if schema.version(db) != len(schema.MIGRATIONS):
                return []
            query = f"{rows.CHAT} {NEWEST_FIRST}"
            return [rows.as_chat(row) for row in db.execute(query, (limit,)).fetchall()]
    except (OSError, sqlite3.Error):
        return []
