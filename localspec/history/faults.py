"""Turns errors of SQLite and the disk into a HistoryError of one sentence. Knows nothing about chats."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.core.errors import HistoryError

FREE_SPACE = "Free some space; what was saved before is safe."
ELSEWHERE = "Chat without saving (localspec chat --no-history), or set LOCALSPEC_DATA_DIR to another folder."
READ_ONLY_ERRNOS = (errno.EROFS, errno.EACCES, errno.EPERM)
READ_ONLY_CODES = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)


class Damaged(sqlite3.DatabaseError):
    """The file is broken in a way that SQLite has no error for."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def primary(fault: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for an error that is not SQLite's own."""
    return int(getattr(fault, "sqlite_errorcode", None) or 0) & 0xFF


def is_damage(fault: sqlite3.Error) -> bool:
    return primary(fault) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def index_is_damaged(fault: sqlite3.Error) -> bool:
    """True when only the search index is damaged, which can be rebuilt from the messages."""
    return getattr(fault, "sqlite_errorcode", None) == sqlite3.SQLITE_CORRUPT_VTAB


def is_read_only(fault: OSError | sqlite3.Error) -> bool:
    """True when the file cannot be written; SQLite may only say that it cannot create its log."""
    if isinstance(fault, OSError):
        return fault.errno in READ_ONLY_ERRNOS
    return primary(fault) in (*READ_ONLY_CODES, sqlite3.SQLITE_CANTOPEN)


def is_full(fault: OSError | sqlite3.Error) -> bool:
    """True when the disk is full: SQLite needs some space beside the file, even to read it."""
    if isinstance(fault, OSError):
        return fault.errno in (errno.ENOSPC, errno.EDQUOT)
    return primary(fault) == sqlite3.SQLITE_FULL


def explained(fault: sqlite3.Error, path: Path) -> HistoryError:
    match primary(fault):
        case sqlite3.SQLITE_FULL:
            return HistoryError(f"The disk with the history {path} is full: this is not saved.", hint=FREE_SPACE)
        case code if code in READ_ONLY_CODES:
            return HistoryError(f"The history {path} cannot be written: it is read-only.", hint=ELSEWHERE)
        case sqlite3.SQLITE_CANTOPEN:
            return HistoryError(f"The history {path} cannot be opened ({fault}).", hint=ELSEWHERE)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return HistoryError(
                f"Another program keeps the history {path} locked.", hint="Close the other program, or try again."
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return HistoryError(
                f"The history {path} is damaged.",
                hint="The next start renames it and begins a new one.",
            )
        case sqlite3.SQLITE_IOERR:
            return HistoryError(f"The disk cannot read or write the history {path} ({fault}).", hint=ELSEWHERE)
        case _:
            return HistoryError(f"The history {path} cannot be used ({fault}).", hint=ELSEWHERE)


def explained_by_system(fault: OSError, path: Path) -> HistoryError:
    if is_full(fault):
        return HistoryError(f"The disk with the history {path} is full.", hint=FREE_SPACE)
    if fault.errno in READ_ONLY_ERRNOS:
        return HistoryError(f"The history {path} cannot be written: it is read-only.", hint=ELSEWHERE)
    return HistoryError(f"The history {path} cannot be opened ({fault.strerror}).", hint=ELSEWHERE)


@contextmanager
def one_sentence(path: Path) -> Iterator[None]:
    """Raises SQLite's and the system's exceptions as a HistoryError; what stops the program passes as it is."""
    try:
        yield
    except sqlite3.Error as fault:
        raise explained(fault, path) from fault
    except OSError as fault:
        raise explained_by_system(fault, path) from fault
