"""Opens the history's file, whatever state it is in: new, old, newer, damaged, somebody else's.

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

from localspec.core.errors import HistoryError
from localspec.core.events import Notice
from localspec.core.plain_file import plain
from localspec.history import schema
from localspec.history.database import BESIDE, SETTINGS, Connection, Database, connect, look_at
from localspec.history.faults import ELSEWHERE, Damaged, is_damage, is_full, is_read_only, one_sentence

OPENING_SECONDS = 60.0  # another program may be copying and migrating a large history
SMALLEST_BYTES = 512  # SQLite's smallest page


def open_database(path: Path, *, reading: bool = False) -> tuple[Database, tuple[Notice, ...]]:
    """The history, and what the user should know about how it was opened. Who is only `reading` may not be able to
    write there."""
    with one_sentence(path):
        try:
            return open_to_write(path)
        except (OSError, sqlite3.Error) as fault:
            if not reading or not (is_read_only(fault) or is_full(fault)) or (db := as_it_is(path)) is None:
                raise
            return Database(path, db, is_read_only=True), ()


def open_to_write(path: Path) -> tuple[Database, tuple[Notice, ...]]:
    with alone(path):
        notices: tuple[Notice, ...] = ()
        try:
            db = ready(path)
        except sqlite3.DatabaseError as fault:
            if not is_damage(fault):
                raise
            notices = (set_aside(path),)
            db = ready(path)
        return Database(path, db), notices


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Holds SQLite's own lock on an empty file beside the history: it works everywhere, and dies with its process."""
    lock = beside(path, ".lock")
    private(lock)
    with closing(connect(lock, timeout=OPENING_SECONDS)) as db:
        db.execute("BEGIN EXCLUSIVE")
        yield


def ready(path: Path) -> Connection:
    """Connected, sound and of our version."""
    private(path)
    size = path.stat().st_size
    if size < SMALLEST_BYTES and (size or any(beside(path, part).exists() for part in BESIDE[1:])):
        raise Damaged("cut to nothing, or nearly")  # SQLite would write over it, and throw its log away
    db = connect(path)
    try:
        refuse_what_is_not_ours(db, path)
        for setting in SETTINGS:
            db.execute(setting).fetchall()
        check(db)
        bring_up_to_date(db, path)
    except BaseException:
        db.close()
        raise
    return db


def as_it_is(path: Path) -> Connection | None:
    """Connected for reading; None where SQLite cannot read it without writing, or it is of an older version."""
    with suppress(sqlite3.OperationalError), ExitStack() as unless_ready:
        db = unless_ready.enter_context(closing(look_at(path)))
        refuse_what_is_not_ours(db, path)
        check(db)
        if schema.version(db) == len(schema.MIGRATIONS):
            unless_ready.pop_all()
            return db
    return None


def refuse_what_is_not_ours(db: sqlite3.Connection, path: Path) -> None:
    found = schema.version(db)
    (mark,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if mark != schema.APPLICATION_ID and (tables or found):
        raise HistoryError(f"{path} is another program's file, and no history of localspec's.", hint=ELSEWHERE)
    if found > len(schema.MIGRATIONS):
        raise HistoryError(
            f"The history {path} was written by a newer localspec (version {found}; "
            f"this one knows {len(schema.MIGRATIONS)}).",
            hint=f"Update localspec. {ELSEWHERE}",
        )


def check(db: sqlite3.Connection) -> None:
    """Every page is where it belongs, and a table of ours is not missing."""
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise Damaged(verdict)
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if schema.version(db) == len(schema.MIGRATIONS) and not tables >= schema.TABLES:
        raise Damaged("a table is missing")


def bring_up_to_date(db: Connection, path: Path) -> None:
    found = schema.version(db)
    if found == len(schema.MIGRATIONS):
        return
    if found:
        copy(db, beside(path, ".copying"), dated(path, f"version-{found}"))
    schema.migrate(db)


def copy(db: Connection, begun: Path, target: Path) -> None:
    """A whole copy, or none: one that was begun by a program that is gone is cleared away."""
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
    """The database with all its files."""
    for part in (*BESIDE, "-journal"):
        beside(path, part).unlink(missing_ok=True)


def set_aside(path: Path) -> Notice:
    """Damaged is not gone: the file keeps its bytes, under another name."""
    aside = dated(path, "corrupt")
    for part in BESIDE:
        if beside(path, part).exists():
            os.replace(beside(path, part), beside(aside, part))
    return Notice(
        "warning",
        "history_damaged",
        f"The history was damaged and is now {aside}; a new one has begun.",
        f"What can be read of it: sqlite3 '{aside}' .recover",
    )


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def dated(path: Path, what: str) -> Path:
    """history.db.corrupt-2026-11-21-10.30.00, or the next such name that is free."""
    name = beside(path, f".{what}-{datetime.now():%Y-%m-%d-%H.%M.%S}")
    number = 1
    while any(beside(taken := beside(name, f".{number}" if number > 1 else ""), part).exists() for part in BESIDE):
        number += 1
    return taken


def private(path: Path) -> None:
    """The file, made if need be; nobody but the user may read it. SQLite gives its log the same rights.

    One that is there is not opened: closing it would drop the locks that another connection of this program has on it,
    and the next program to leave would take the log away from under it (https://sqlite.org/howtocorrupt.html, 2.2).
    """
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    plain(path)
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
