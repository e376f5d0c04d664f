"""Results of `localspec run --batch`: printed in order, or written to a file that a later run continues."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Self  # Any: JSON

import msgspec

from localspec.cli.batch_lines import BatchRequest, ResultLine
from localspec.cli.io import as_json
from localspec.core.errors import UsageError
from localspec.core.locks import Lock, lock
from localspec.core.plain_file import plain
from localspec.core.whole_file import cannot_be_written, create, write_whole


class Head(msgspec.Struct):
    """What a result is of, and its error."""

    index: int
    id: str | int | None = None
    asked: str = ""
    error: dict[str, Any] | None = None


HEAD = msgspec.json.Decoder(Head).decode


class Printed:
    """Results on stdout, each once all before it are there."""

    failed = 0  # of earlier runs

    def __init__(self) -> None:
        self._waiting: dict[int, ResultLine] = {}
        self._next = 0

    def has(self, _: int) -> bool:
        return False

    def write(self, record: ResultLine) -> None:
        self._waiting[record["index"]] = record
        while self._next in self._waiting:
            print(as_json(self._waiting.pop(self._next)), flush=True)
            self._next += 1

    def close(self) -> None:
        """Prints what is there of those after one that is not."""
        for _, record in sorted(self._waiting.items()):
            print(as_json(record), flush=True)


class ResultsFile:
    """Results in a file, each once it is ready; when all are there, they are put in order. What the file has is not
    asked for again."""

    def __init__(self, file: Path, held: Lock, heads: list[Head], count: int) -> None:
        self._file, self._held, self._count = file, held, count
        self._indices = [head.index for head in heads]
        self.failed = sum(head.error is not None for head in heads)
        self._stream = file.open("ab")

    @classmethod
    def open(cls, file: Path, asked: Sequence[BatchRequest]) -> Self:
        """Opens the file, or makes it; UsageError where it has results of other requests, or another process writes it.
        Half a line at its end is dropped."""
        with cannot_be_written(file):
            if not file.exists():
                create(file).close()
            held = lock(plain(file))
            if held is None:
                raise UsageError(f"Another localspec writes '{file}'.", hint="Wait for it, or name another FILE.")
            content = file.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            heads = [checked(file, number, line, asked) for number, line in enumerate(whole.splitlines(), 1)]
            os.truncate(file, len(whole))
            return cls(file, held, heads, len(asked))

    def has(self, index: int) -> bool:
        return index in self._indices

    def write(self, record: ResultLine) -> None:
        with cannot_be_written(self._file):
            self._stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            self._stream.flush()
        self._indices.append(record["index"])

    def close(self) -> None:
        """Puts them in order where all are there, and lets others write the file."""
        with closing(self._held):
            self._stream.close()
            self._sort()

    def _sort(self) -> None:
        if len(self._indices) == self._count and self._indices != sorted(self._indices):
            with cannot_be_written(self._file):
                lines = self._file.read_bytes().splitlines(keepends=True)
                ordered = [line for _, line in sorted(zip(self._indices, lines, strict=True))]
                mode = self._file.stat().st_mode
                write_whole(self._file.resolve(), b"".join(ordered))
                self._file.chmod(mode)


def checked(file: Path, number: int, content: bytes, asked: Sequence[BatchRequest]) -> Head:
    """What a result is of; UsageError if it belongs to none of these requests."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        head = HEAD(content)
        if 0 <= head.index < len(asked) and head.id == asked[head.index].id:
            if head.asked == asked[head.index].digest:
                return head
            message = (
                f"Line {number} of '{file}' answers what was asked before its prompt, the model or an option changed."
            )
            raise UsageError(message, hint="Choose another file with --output, or delete that line to ask again.")
    message = f"'{file}' has results of another batch (line {number})."
    raise UsageError(message, hint="Choose another file with --output.")
