"""The record of a pull in the state folder: who fetches a repository now, and its last event.

A lock says that a pull runs; its events are lines of JSON, which a second terminal reads. Knows nothing about printing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep

import msgspec

from localspec.core import paths
from localspec.core.locks import Lock, lock
from localspec.core.process import LOOK_SECONDS
from localspec.hub.records import HubAnswer, Progress

ANSWERS = msgspec.json.Decoder(HubAnswer)
EVERY_SECONDS = 0.5  # between two lines of progress
HELD = "LOCALSPEC_PULL_LOCK"  # the lock's descriptor, in a background pull's environment


class PullRecord:
    """One repository's."""

    def __init__(self, repo: str) -> None:
        name = repo.replace("/", "--")
        self._events = paths.pulls_dir() / f"{name}.jsonl"
        self._lock_file = paths.pulls_dir() / f"{name}.lock"
        self._written = 0.0

    def take(self) -> Lock | None:
        """The right to fetch it, which a background pull has from its parent; None while another localspec has it."""
        inherited = os.environ.pop(HELD, "")
        held = Lock(int(inherited)) if inherited.isdecimal() else lock(self._lock_file)
        if held is not None:
            self.note_holder(os.getpid())
        return held

    @property
    def is_held(self) -> bool:
        """Whether another process has the right to fetch it."""
        if (free := lock(self._lock_file)) is None:
            return True
        free.close()
        return False

    @property
    def holder(self) -> int:
        """The process that took the right last; ProcessLookupError where that is not known."""
        try:
            return int(self._lock_file.read_text("ascii"))
        except (OSError, ValueError):
            raise ProcessLookupError from None

    def note_holder(self, pid: int) -> None:
        with suppress(OSError):
            self._lock_file.write_text(str(pid), "ascii")

    def begin(self) -> None:
        with suppress(OSError):
            self._events.write_bytes(b"")

    def add(self, event: HubAnswer) -> None:
        """Adds an event; of progress one every half second."""
        if isinstance(event, Progress) and monotonic() - self._written < EVERY_SECONDS:
            return
        self._written = monotonic() if isinstance(event, Progress) else self._written
        with suppress(OSError), self._events.open("ab") as file:
            file.write(msgspec.json.encode(event) + b"\n")

    def events(self, start: int = 0) -> tuple[list[HubAnswer], int]:
        """The events after this byte, and where they end; a line that is half written is left for later."""
        try:
            with self._events.open("rb") as file:
                file.seek(start)
                whole, _, _ = file.read().rpartition(b"\n")
        except OSError:
            return [], start
        found = []
        for line in whole.splitlines():
            with suppress(msgspec.DecodeError):
                found.append(ANSWERS.decode(line))
        return found, start + len(whole) + bool(whole)


def watched(record: PullRecord) -> Iterator[HubAnswer]:
    """What another localspec that fetches it does, until it ends."""
    seen = 0
    while True:
        ended = not record.is_held
        events, seen = record.events(seen)
        yield from events
        if ended:
            return
        sleep(LOOK_SECONDS)


@contextmanager
def recorded(record: PullRecord) -> Iterator[Lock | None]:
    """Holds the right to fetch a repository, with a new record; None where another localspec has it."""
    held = record.take()
    try:
        if held is not None:
            record.begin()
        yield held
    finally:
        if held is not None:
            held.close()
