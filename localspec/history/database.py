"""One connection to the history's file, shared by the threads of a program. Knows SQL and locks, and no chats.

What `write` has returned from is on the disk. Its transaction is whole or was never there.
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
TRY_SECONDS = 0.004  # at most between two tries, at random: not in step with the other program
SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # a commit survives the power going out, not only the program
    "PRAGMA foreign_keys = ON",
    "PRAGMA secure_delete = ON",  # what the user deletes is overwritten
)


def storable(value: Any) -> Any:  # whatever SQLite takes
    """Half a character (a lone surrogate) is no text anywhere else, and becomes U+FFFD."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Connection(sqlite3.Connection):
    """SQLite's, which takes and gives every text there is."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # as sqlite3 has it
        try:
            return super().execute(sql, tuple(map(storable, parameters)))
        except UnicodeDecodeError as fault:  # SQLite's own message quotes damaged bytes
            raise Damaged("a name in the file is no text") from fault


def files_of(path: Path) -> tuple[Path, ...]:
    """Those of a database that are there. OSError for one that is no file: SQLite would wait for a fifo, for ever."""
    found = []
    for ending in (*BESIDE, "-journal"):
        with suppress(FileNotFoundError):
            found.append(plain(path.with_name(path.name + ending)))
    return tuple(found)


def connect(path: Path, *, timeout: float = LOCKED_SECONDS) -> Connection:
    """Nothing is read or written yet."""
    files_of(path)
    return prepared(
        sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False, factory=Connection)
    )


def look_at(path: Path) -> Connection:
    """For reading alone. Where there is no log SQLite would leave one, so it is told that nobody writes."""
    quiet = "" if path.with_name(f"{path.name}-wal") in files_of(path) else "&immutable=1"
    place = f"{path.absolute().as_uri()}?mode=ro{quiet}"
    return prepared(sqlite3.connect(place, uri=True, isolation_level=None, check_same_thread=False, factory=Connection))


def prepared(db: Connection) -> Connection:
    db.row_factory = sqlite3.Row
    db.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return db


def rebuild_indexes(db: sqlite3.Connection) -> None:
    """Those that are made from what another table has."""
    for index in ("message_fts", "attachment_fts"):
        db.execute(f"INSERT INTO {index}({index}) VALUES ('rebuild')")


class Database:
    """A history that has been opened and is of our version."""

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
        """What is read inside is of one moment, whatever others write meanwhile."""
        with self._lock, one_sentence(self.path):
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs the work in a transaction. When it raises, nothing has happened."""
        with self._lock, one_sentence(self.path):
            return self._healing(lambda: self._transaction(work))

    def erase(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """As `write`; then nothing of what the work deleted is left in the file, its log or its index."""

        def thorough(db: sqlite3.Connection) -> T:
            result = work(db)
            for index in ("message_fts", "title_fts", "attachment_fts"):
                db.execute(f"INSERT INTO {index}({index}) VALUES ('optimize')")
            return result

        result = self.write(thorough)
        with self._lock, suppress(sqlite3.Error):  # the log is emptied later when another program is reading it
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return result

    def close(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            self._db.close()

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._begin()
        try:
            self._check_place()
            result = work(self._db)
            self._db.execute("COMMIT")
            return result
        except BaseException:
            with suppress(sqlite3.Error):
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            raise

    def _begin(self) -> None:
        """As soon as no other program writes. SQLite's own tries come a tenth of a second apart: of a program that
        commits on and on they may miss every moment in which it has let go."""
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

    def _check_place(self) -> None:
        """A file that was moved away takes writes that nobody finds; a newer program's has rules we do not know."""
        if identity(self.path) != self._file:
            raise HistoryError(
                f"The history {self.path} was moved or deleted while it was open: this is not saved.",
                hint="Start localspec again.",
            )
        if schema.version(self._db) != len(schema.MIGRATIONS):
            raise HistoryError(
                f"A newer localspec has taken over the history {self.path}: this is not saved.",
                hint="Start localspec again.",
            )

    def _healing(self, work: Callable[[], T]) -> T:
        """Once more with a new index, when it was the index that was damaged."""
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
