"""One connection to the history's file, shared by the threads of a program. Knows SQL and locks, and no chats.

When `write` returns, its data is on disk. A transaction is written whole or not at all.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import uniform
from threading import RLock
from time import monotonic, sleep
from typing import Any, TypeVar

from localspec.core.errors import HistoryError
from localspec.core.plain_file import plain
from localspec.history import schema
from localspec.history.faults import Damaged, index_is_damaged, one_sentence, primary

BESIDE = ("", "-wal", "-shm")  # a database is these three files
T = TypeVar("T")
LOCKED_SECONDS = 5.0  # another program's commit takes milliseconds; its longest search less than this
TRY_SECONDS = 0.004  # at most between two tries, at random, so as not to keep in step with the other program
SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # a commit survives the power going out, not only the program
    "PRAGMA foreign_keys = ON",
    "PRAGMA secure_delete = ON",  # what the user deletes is overwritten
)


def storable(value: Any) -> Any:  # whatever SQLite takes
    """The value with lone surrogates replaced by U+FFFD: only Python takes them for text."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Connection(sqlite3.Connection):
    """An SQLite connection that can store and return any Python string."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # as sqlite3 has it
        try:
            return super().execute(sql, tuple(map(storable, parameters)))
        except UnicodeDecodeError as fault:  # SQLite's own message quotes damaged bytes
            raise Damaged("a table's or column's name is not valid text") from fault


def files_of(path: Path) -> tuple[Path, ...]:
    """The files of a database that exist. OSError for anything but a regular file: SQLite would wait for a fifo."""
    found = []
    for ending in (*BESIDE, "-journal"):
        with suppress(FileNotFoundError):
            found.append(plain(path.with_name(path.name + ending)))
    return tuple(found)


def connect(path: Path, *, timeout: float = LOCKED_SECONDS) -> Connection:
    """Connects to a database; reads and writes nothing yet."""
    files_of(path)
    return prepared(
        sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False, factory=Connection)
    )


def connect_read_only(path: Path) -> Connection:
    """Connects for reading only. SQLite would create a missing log, so without one it is opened as immutable."""
    immutable = "" if path.with_name(f"{path.name}-wal") in files_of(path) else "&immutable=1"
    uri = f"{path.absolute().as_uri()}?mode=ro{immutable}"
    return prepared(sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, factory=Connection))


def prepared(db: Connection) -> Connection:
    db.row_factory = sqlite3.Row
    db.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return db


def rebuild_indexes(db: sqlite3.Connection) -> None:
    """Rebuilds the full-text indexes that are derived from another table."""
    for index in ("message_fts", "attachment_fts"):
        db.execute(f"INSERT INTO {index}({index}) VALUES ('rebuild')")


class Database:
    """An open history of this version."""

    def __init__(self, path: Path, db: Connection, *, is_read_only: bool = False) -> None:
        self.path, self.is_read_only = path, is_read_only
        self._db = db
        self._lock = RLock()
        self._file = identity(path)

    def read(self, sql: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        with self._lock, one_sentence(self.path):
            return self._healing(lambda: self._db.execute(sql, parameters).fetchall())

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Makes every read inside see one moment, whatever other programs write meanwhile."""
        with self._lock, one_sentence(self.path):
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs the work in a transaction; when it raises, nothing is changed."""
        with self._lock, one_sentence(self.path):
            return self._healing(lambda: self._transaction(work))

    def erase(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Does what `write` does, and leaves nothing of the deleted data in the file, its log or its index."""

        def thorough(db: sqlite3.Connection) -> T:
            result = work(db)
            for index in ("message_fts", "title_fts", "attachment_fts"):
                db.execute(f"INSERT INTO {index}({index}) VALUES ('optimize')")
            return result

        result = self.write(thorough)
        self.empty_log()
        return result

    def empty_log(self) -> None:
        """Leaves nothing of what was deleted in the log; while another program reads that, it is emptied later."""
        with self._lock, suppress(sqlite3.Error):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            self._db.close()

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._begin()
        try:
            self._check_file()
            result = work(self._db)
            self._db.execute("COMMIT")
            return result
        except BaseException:
            with suppress(sqlite3.Error):
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            raise

    def _begin(self) -> None:
        """Begins a transaction as soon as no other program writes. SQLite tries every tenth of a second and may
        miss each moment in which a program that commits all the time has released the lock."""
        (milliseconds,) = self._db.execute("PRAGMA busy_timeout").fetchone()
        until = monotonic() + milliseconds / 1000
        self._db.execute("PRAGMA busy_timeout = 0")
        try:
            while not self._begun(last=monotonic() >= until):
                sleep(uniform(0, TRY_SECONDS))
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {milliseconds}")

    def _begun(self, *, last: bool) -> bool:
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as fault:
            if last or primary(fault) != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    def _check_file(self) -> None:
        """Refuses to write into a file that was moved away, or that a newer version has migrated."""
        if identity(self.path) != self._file:
            raise HistoryError(
                f"The history {self.path} was moved or deleted while it was open: this is not saved.",
                hint="Start localspec again.",
            )
        if schema.version(self._db) != len(schema.MIGRATIONS):
            raise HistoryError(
                f"A newer localspec has upgraded the history {self.path}: this is not saved.",
                hint="Start localspec again.",
            )

    def _healing(self, work: Callable[[], T]) -> T:
        """Runs the work; when the search index is damaged, rebuilds it and runs the work again."""
        try:
            return work()
        except sqlite3.DatabaseError as fault:
            if not index_is_damaged(fault) or self._db.in_transaction:
                raise
            self._transaction(rebuild_indexes)
            return work()


def identity(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None
