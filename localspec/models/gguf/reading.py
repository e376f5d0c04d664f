"""Reads the header of a GGUF file value by value. Counts and lengths are checked against the file's size before use."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from localspec.core.errors import REPEAT, CheckpointError
from localspec.models.gguf.types import ARRAY, NUMBERS, STRING

MAX_BYTES = 64 << 20  # metadata and the list of tensors; Gemma's, the largest we know, has 16 MB
MAX_STRINGS = 3 << 19  # in all arrays of a file; Gemma's tokens and merges are 0.8 million
MAX_NUMBERS = 2 << 20  # in one array
CHUNK = 1 << 20  # bytes read at once
COUNT = struct.Struct("<Q")

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """An array of values, as bytes of the file."""

    kind: int
    count: int
    raw: bytes

    def values(self) -> tuple[Scalar, ...]:
        if self.kind != STRING:
            return struct.unpack(f"<{self.count}{NUMBERS[self.kind]}", self.raw)
        return tuple(self.strings())

    def strings(self) -> Iterator[str]:
        at = 0
        for _ in range(self.count):
            begin = at + COUNT.size
            at = begin + COUNT.unpack_from(self.raw, at)[0]
            yield self.raw[begin:at].decode()


class Metadata(Mapping[str, Value]):
    """Values by key. Arrays are decoded when they are read: most are not."""

    def __init__(self, file: Path, found: dict[str, Scalar | Array]) -> None:
        self.file, self.found = file, found

    def __getitem__(self, key: str) -> Value:
        value = self.found[key]
        try:
            return value.values() if isinstance(value, Array) else value
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self.file}: its '{key[:80]}' is not UTF-8 text.", hint=REPEAT) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)


class Beginning:
    """Reads values in sequence; reads at most a chunk more of the file than needed."""

    def __init__(self, file: Path, stream: IO[bytes], size: int, limit: int = MAX_BYTES) -> None:
        """Begins at the start of a file. `limit`: the most bytes that the header may have."""
        self.file, self.stream, self.size, self.limit = file, stream, size, limit
        self.raw = bytearray()
        self.at = 0
        self.strings_left = MAX_STRINGS

    def skip(self, num_bytes: int) -> int:
        """Reads so many bytes; returns their offset."""
        begin, self.at = self.at, self.at + num_bytes
        if self.at > len(self.raw):
            self.fill()
        return begin

    def fill(self) -> None:
        if self.at > self.size:
            raise CheckpointError(f"{self.file} is cut short: its header goes beyond its end.", hint=REPEAT)
        if self.at > self.limit:
            raise self.fault(f"its header is longer than {self.limit:,} bytes")
        self.raw += self.stream.read(max(CHUNK, self.at - len(self.raw)))
        if self.at > len(self.raw):
            raise CheckpointError(f"{self.file} became shorter while it was read.", hint=REPEAT)

    def take(self, num_bytes: int) -> bytes:
        begin = self.skip(num_bytes)
        return bytes(self.raw[begin : self.at])

    def number(self, letter: str) -> int | float | bool:
        layout = struct.Struct(f"<{letter}")
        found: int | float | bool = layout.unpack_from(self.raw, self.skip(layout.size))[0]
        return found

    def whole(self, letter: str) -> int:
        return int(self.number(letter))

    def text(self, what: str, longest: int = MAX_BYTES) -> str:
        length = self.whole("Q")
        if length > longest:
            raise self.fault(f"{what} is {length:,} bytes long")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise self.fault(f"{what} is not UTF-8 text") from error

    def count(self, what: str, least_bytes: int, most: int) -> int:
        """Reads a count of things that take at least `least_bytes` each; CheckpointError above `most`."""
        found = self.whole("Q")
        self.check_count(what, found, least_bytes, most)
        return found

    def check_count(self, what: str, count: int, least_bytes: int, most: int) -> None:
        if count > most or count * least_bytes > self.size - self.at:
            raise self.fault(f"it claims {count:,} {what}, but only {self.size - self.at:,} bytes follow")

    def value(self, key: str) -> Scalar | Array:
        kind = self.whole("I")
        if kind == STRING:
            return self.text(f"its '{key[:80]}'")
        if kind == ARRAY:
            return self.array(key)
        return self.number(self.letter(key, kind))

    def array(self, key: str) -> Array:
        kind, what = self.whole("I"), f"values of '{key[:80]}'"
        if kind != STRING:
            width = struct.calcsize(f"<{self.letter(key, kind)}")
            count = self.count(what, width, MAX_NUMBERS)
            return Array(kind, count, self.take(count * width))
        count = self.count(what, COUNT.size, self.strings_left)
        self.strings_left -= count
        return Array(kind, count, self.strings(count))

    def strings(self, count: int) -> bytes:
        """Reads strings, each after its length, as bytes."""
        begin, length = self.at, COUNT.unpack_from
        for _ in range(count):
            at, self.at = self.at, self.at + COUNT.size
            if self.at > len(self.raw):
                self.fill()
            self.at += length(self.raw, at)[0]
        self.skip(0)
        return bytes(self.raw[begin : self.at])

    def letter(self, key: str, kind: int) -> str:
        if kind not in NUMBERS:
            what = "an array of arrays" if kind == ARRAY else f"of the unknown type {kind}"
            raise self.fault(f"its '{key[:80]}' is {what}")
        return NUMBERS[kind]

    def fault(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.file} is not a valid GGUF file: {what}.", hint=REPEAT)
