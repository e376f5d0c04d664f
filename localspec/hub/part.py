"""A part of a file, kept from one start to the next, and the hash of the bytes in it.

The library's `http_get` writes into it as into a file. Knows nothing about hubs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import TracebackType

PIECE = 1 << 20


class PartFile:
    """Opened at its end, made if need be, unbuffered: what was written stays when the process is killed.

    `moved` is called with the bytes that arrived, negative where they were thrown away again, and with 0 before they
    are written: what it raises stops that. `size` is the whole file's; OverflowError for bytes past it.
    """

    def __init__(self, path: Path, size: int, moved: Callable[[int], None]) -> None:
        self.path, self._size, self._moved = path, size, moved
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        if self.tell() > size:
            self._file.truncate(0)
            self._file.seek(0)
        self._hash = sha256()

    def __enter__(self) -> PartFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def read_again(self, read: Callable[[], None]) -> None:
        """Hashes what is there; `read` is called at each piece."""
        self._hash = sha256()
        with self.path.open("rb") as file:
            while piece := file.read(PIECE):
                self._hash.update(piece)
                read()

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def truncate(self) -> int:
        """Drops what follows the position: the server begins again."""
        before = os.fstat(self._file.fileno()).st_size
        left = self._file.truncate()
        self._moved(left - before)
        self.read_again(lambda: None)
        return left

    def write(self, piece: bytes) -> int:
        if self.tell() + len(piece) > self._size:
            raise OverflowError(f"more than {self._size:,} bytes")
        self._moved(0)
        rest = memoryview(piece)
        while rest:
            count = self._file.write(rest) or 0
            self._hash.update(rest[:count])
            self._moved(count)
            rest = rest[count:]
        return len(piece)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def become(self, whole: Path) -> None:
        """The part is the whole file, on the disk: from now on it has this name."""
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self.path, whole)

    def delete(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)
