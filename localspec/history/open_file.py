"""Opens the history's file in any state: new, old, newer, damaged, or another program's.

One program at a time does so. Knows nothing about chats.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from localspec.core.errors import UPDATE, HistoryError
from localspec.core.events import Notice
from localspec.core.plain_file import plain
from localspec.history import schema
from localspec.history.database import BESIDE, SETTINGS, Connection, Database, connect, connect_read_only
from localspec.history.faults import ELSEWHERE, Damaged, is_damage, is_full, is_read_only, one_sentence

OPENING_SECONDS = 60.0  # another program may be copying and migrating a large history
SMALLEST_BYTES = 512  # SQLite's smallest page


def open_database(path: Path, *, reading: bool = False) -> tuple[Database, tuple[Notice, ...]]:
    """The history, and notices about how it was opened. With `reading`, a file that cannot be written is opened
    read-only."""
    with one_sentence(path):
        try:
            return open_to_write(path)
        except (OSError, sqlite3.Error) as fault:
            if not reading or not (is_read_only(fault) or is_full(fault)) or (db := opened_read_only(path)) is None:
                raise
            return Database(path, db, is_read_only=True), ()


def open_to_write(path: Path) -> tuple[Database, tuple[Notice, ...]]:
    with opening_lock(path):
        notices: tuple[Notice, ...] = ()
        try:
            db = ready(path)
        except sqlite3.DatabaseError as fault:
            if not is_damage(fault):
                raise
            notices = (rename_damaged(path),)
            db = ready(path)
        return Database(path, db), notices


@contextmanager
def opening_lock(path: Path) -> Iterator[None]:
    """Holds SQLite's lock on an empty file beside the history: it works everywhere and ends with the process."""
    lock = beside(path, ".lock")
    private(lock)
    with closing(connect(lock, timeout=OPENING_SECONDS)) as db:
        db.execute("BEGIN EXCLUSIVE")
        yield


def ready(path: Path) -> Connection:
    """A connection to a history that was checked and is of this version."""
    private(path)
    size = path.stat().st_size
    if size < SMALLEST_BYTES and (size or any(beside(path, part).exists() for part in BESIDE[1:])):
        raise Damaged("cut to nothing, or nearly")  # SQLite would overwrite it and discard its log
    db = connect(path)
    try:
        refuse_foreign(db, path)
        for setting in SETTINGS:
            db.execute(setting).fetchall()
        check(db)
        migrate(db, path)
    except BaseException:
        db.close()
        raise
    return db


def opened_read_only(path: Path) -> Connection | None:
    """A read-only connection; None where SQLite cannot read without writing, or the file is of an older version."""
    with suppress(sqlite3.OperationalError), ExitStack() as unless_ready:
        db = unless_ready.enter_context(closing(connect_read_only(path)))
        refuse_foreign(db, path)
        check(db)
        if schema.version(db) == len(schema.MIGRATIONS):
            unless_ready.pop_all()
            return db
    return None


def refuse_foreign(db: sqlite3.Connection, path: Path) -> None:
    found = schema.version(db)
    (mark,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if mark != schema.APPLICATION_ID and (tables or found):
        raise HistoryError(f"{path} belongs to another program; it is not a localspec history.", hint=ELSEWHERE)
    if found > len(schema.MIGRATIONS):
        raise HistoryError(
            f"The history {path} was written by a newer localspec (version {found}; "
            f"this one knows {len(schema.MIGRATIONS)}).",
            hint=f"{UPDATE} {ELSEWHERE}",
        )


def check(db: sqlite3.Connection) -> None:
    """Raises Damaged unless SQLite's quick check passes and every table exists."""
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise Damaged(verdict)
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if schema.version(db) == len(schema.MIGRATIONS) and not tables >= schema.TABLES:
        raise Damaged("a table is missing")


def migrate(db: Connection, path: Path) -> None:
    """Migrates an older history to this version, after a copy of it was made."""
    found = schema.version(db)
    if found == len(schema.MIGRATIONS):
        return
    if found:
        copy(db, beside(path, ".copying"), dated(path, f"version-{found}"))
    schema.migrate(db)


def copy(db: Connection, begun: Path, target: Path) -> None:
    """Copies the database to `target`, whole or not at all; deletes what an interrupted copy has left."""
    clear(begun)
    private(begun)
    try:
        with closing(connect(begun)) as other:
            db.backup(other)
        os.replace(begun, target)
    except BaseException:
        clear(begun)
        raise


def clear(path: Path) -> None:
    """Deletes a database with all its files."""
    for part in (*BESIDE, "-journal"):
        beside(path, part).unlink(missing_ok=True)


def rename_damaged(path: Path) -> Notice:
    """Renames a damaged history, without changing a byte of it, and says where it is."""
    aside = dated(path, "corrupt")
    for part in BESIDE:
        if beside(path, part).exists():
            os.replace(beside(path, part), beside(aside, part))
    return Notice(
        "warning",
        "history_damaged",
        f"The history was damaged and is now {aside}; a new one has been started.",
        f"Recover what is readable: sqlite3 '{aside}' .recover",
    )


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def dated(path: Path, what: str) -> Path:
    """A free name such as history.db.corrupt-2026-11-21-10.30.00."""
    name = beside(path, f".{what}-{datetime.now():%Y-%m-%d-%H.%M.%S}")
    number = 1
    while any(beside(taken := beside(name, f".{number}" if number > 1 else ""), part).exists() for part in BESIDE):
        number += 1
    return taken


def private(path: Path) -> None:
    """Makes the file if need be, readable by its user alone. SQLite gives its log the same rights.

    An existing file is not opened: closing it would drop the locks that another connection of this program has on it,
    and the next program to close would delete the log in use (https://sqlite.org/howtocorrupt.html, 2.2).
    """
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    plain(path)
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
