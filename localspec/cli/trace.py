"""The file of `run --trace`, a JSON line a round, and `localspec trace`, which reads it.

Knows the records of a trace and files; no engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import msgspec

from localspec.core.errors import UsageError
from localspec.core.events import Event
from localspec.core.trace import VERSION, TracedRound, TraceEnd, TraceHead, TraceLine
from localspec.core.whole_file import cannot_be_written, create

LONGEST = 1 << 20  # bytes of a line: a round of 17 tokens has a few thousand


class Versioned(Event, frozen=True, tag="trace"):
    """What every version's head has."""

    version: int


class TraceFile:
    """A new file, readable by its owner alone; every record is written when it is made, so that a killed program
    leaves the rounds so far."""

    def __init__(self, file: Path, stream: FileIO) -> None:
        self.file, self.stream, self.written = file, stream, 0

    def write(self, record: TraceLine) -> None:
        with cannot_be_written(self.file):
            self.stream.write(msgspec.json.encode(record) + b"\n")
        self.written += 1


@contextmanager
def new_trace(file: Path) -> Iterator[TraceFile]:
    """The file, opened before minutes of loading; where nothing came to be written, it is deleted."""
    with create(file) as stream:
        trace = TraceFile(file, stream)
        try:
            yield trace
        finally:
            if not trace.written and file.is_file():
                file.unlink()


def read_trace(file: Path) -> Iterator[TraceLine]:
    """Yields the head, the rounds and the end, line by line; UsageError if it is not a trace. A last line that was cut
    in the middle is left out: the program that wrote it was killed."""
    with opened(file) as stream:
        ended, number = False, 0
        for number, line in enumerate(lines(stream), start=1):
            if ended:
                raise no_trace(file, f"line {number} comes after its end")
            if number > 1 and is_cut(line):
                return
            found = parse(line, number, file)
            ended = isinstance(found, TraceEnd)
            yield found
        if number == 0:
            raise no_trace(file, "it is empty")


def opened(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except FileNotFoundError as fault:
        raise UsageError(f"There is no file '{file}'.", hint=f"Write one: {EXAMPLE}") from fault
    except IsADirectoryError as fault:
        raise no_trace(file, "it is a folder") from fault
    except OSError as fault:
        raise no_trace(file, f"it cannot be read ({fault.strerror})") from fault


def lines(stream: BinaryIO) -> Iterator[bytes]:
    while line := stream.readline(LONGEST + 1):
        yield line


def is_cut(line: bytes) -> bool:
    """Whether the file ends in the middle of this line."""
    if line.endswith(b"\n") or len(line) > LONGEST:
        return False
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def parse(line: bytes, number: int, file: Path) -> TraceLine:
    """The record of a line; the first one is the head, and no other is."""
    if number == 1:
        check_version(line, file)
    try:
        found = DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise no_trace(file, f"line {number} is not a record") from fault
    if isinstance(found, TraceHead) != (number == 1):
        raise no_trace(file, "its first line does not begin one" if number == 1 else f"line {number} begins another")
    return found


def check_version(line: bytes, file: Path) -> None:
    """UsageError for a head of another version, whatever else it has. What is no head is left to others."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        if (version := VERSIONED.decode(line).version) != VERSION:
            raise UsageError(
                f"'{file}' is a trace of version {version}, and this localspec reads version {VERSION}.",
                hint="Write it again, or use the localspec that wrote it.",
            )


def no_trace(file: Path, why: str) -> UsageError:
    return UsageError(f"'{file}' is not a trace: {why}.", hint=f"Write one: {EXAMPLE}")


EXAMPLE = 'localspec run MODEL "PROMPT" --trace FILE'
VERSIONED: msgspec.json.Decoder[Versioned] = msgspec.json.Decoder(Versioned)
DECODER: msgspec.json.Decoder[TraceLine] = msgspec.json.Decoder(TraceHead | TracedRound | TraceEnd)
