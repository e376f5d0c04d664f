"""How much memory and processor time a process may still take, and which file is to blame where it takes more.

Used inside the sandbox's own process, which the system ends when the limit is reached; elsewhere nothing is limited.
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
    """Notes of `entering` go into this open file from now on."""
    global _note  # noqa: PLW0603 - one process, one note
    _note = file


def entering(part: Part) -> None:
    """What runs from here on is this part's of the model's folder."""
    if _note is not None:
        os.pwrite(_note, bytes([PARTS.index(part)]), 0)


def entered(file: int) -> Part:
    """The part that was noted last in this open file."""
    found = os.pread(file, 1, 0)
    return PARTS[found[0]] if found else "tokenizer"


@contextmanager
def limited(seconds: float, num_bytes: int) -> Iterator[None]:
    """At most so many seconds of the processor, whatever else the machine does, and so many bytes more than now.

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
    """Bytes of this process's address space; None where the system does not limit it either."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split(maxsplit=1)[0]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
