"""A small JSON file in the state folder: one value per key, written whole. A damaged file counts as empty."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

import msgspec

from localspec.core.errors import UsageError
from localspec.core.plain_file import read_small
from localspec.core.whole_file import write_whole

Value = TypeVar("Value")


class JsonStore(Generic[Value]):
    """`file` says where it is when it is needed; `kind` is the type of its values. Numbers are read from text, too, as
    earlier versions wrote some."""

    def __init__(self, file: Callable[[], Path], kind: type[Value]) -> None:
        self._file = file
        self._decoder = msgspec.json.Decoder(dict[str, kind], strict=False)  # type: ignore[valid-type]
        self._writing = Lock()

    def read(self) -> dict[str, Value]:
        try:
            return self._decoder.decode(read_small(self._file()))
        except (OSError, UsageError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}

    def put(self, key: str, value: Value) -> bool:
        """False: the file cannot be written."""
        with self._writing, suppress(OSError, UsageError):
            whole = {**self.read(), key: value}
            write_whole(self._file(), msgspec.json.format(msgspec.json.encode(whole)))
            return True
        return False

    def remove(self, key: str) -> bool:
        """False: the file cannot be written."""
        with self._writing, suppress(OSError, UsageError):
            whole = self.read()
            if whole.pop(key, None) is not None:
                write_whole(self._file(), msgspec.json.format(msgspec.json.encode(whole)))
            return True
        return False
