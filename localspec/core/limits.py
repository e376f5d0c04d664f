"""Limits the memory and processor time of this process, and notes which file is to blame when it takes more.

Used inside the sandbox's process only, which the system ends at the limit.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Part = Literal["template", "tokenizer"]
PARTS: tuple[Part, ...] = ("template", "tokenizer")

_note: int | None = None  # an open file, which outlives this process


def note_in(file: int) -> None:
    """Makes `entering` write its notes into this open file."""
    global _note  # noqa: PLW0603 - one process, one note
    _note = file


def entering(part: Part) -> None:
    """Notes that from here on this part of the model's folder runs."""
    if _note is not None:
        os.pwrite(_note, bytes([PARTS.index(part)]), 0)


def entered(file: int) -> Part:
    """The part noted last in this open file."""
    found = os.pread(file, 1, 0)
    return PARTS[found[0]] if found else "tokenizer"


@contextmanager
def limited(seconds: float, num_bytes: int) -> Iterator[None]:
    """Limits this process to so many seconds of processor time, and so many bytes more than it has now.

    The system ends the process after that time. Python raises MemoryError; a library in another language may abort.
    """
    if not hasattr(signal, "setitimer"):  # Windows
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    if held := address_space():
        resource.setrlimit(resource.RLIMIT_AS, (held + num_bytes, before[1]))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)


def address_space() -> int | None:
    """Bytes of this process's address space; None on systems that cannot limit it."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split(maxsplit=1)[0]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
