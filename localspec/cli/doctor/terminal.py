"""The kind of terminal, and whether it can tell Shift+Enter from Enter: the only part that queries the terminal."""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
from time import monotonic

from localspec.cli.doctor.records import Terminal
from localspec.core.sanitize import one_line

QUESTION = b"\x1b[?u\x1b[c"  # the kitty protocol's keyboard flags, then a query that every terminal answers
FLAGS, END = re.compile(rb"\x1b\[\?\d+u"), re.compile(rb"\x1b\[\?[\d;]*c")
PATIENCE_SECONDS = 1.0  # over a slow line


def look() -> Terminal:
    size = shutil.get_terminal_size()
    names = (os.environ.get("TERM_PROGRAM", ""), os.environ.get("TERM", ""))
    kind = " · ".join(one_line(name) for name in names if name)
    return Terminal(kind, size.columns, size.lines, tells_shift_enter())


def tells_shift_enter() -> bool | None:
    """Whether Shift+Enter is distinct; None without a terminal, in the background, or without an answer."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    try:
        import termios
        import tty
    except ImportError:  # Windows
        return None
    keys = sys.stdin.fileno()
    try:
        if os.tcgetpgrp(keys) != os.getpgrp():
            return None  # setting the terminal from the background would stop the program
        before = termios.tcgetattr(keys)
        try:
            tty.setcbreak(keys)
            os.write(sys.stdout.fileno(), QUESTION)
            answer = read_answer(keys)
        finally:
            termios.tcsetattr(keys, termios.TCSAFLUSH, before)
    except (OSError, termios.error):
        return None
    return bool(FLAGS.search(answer)) if END.search(answer) else None


def read_answer(keys: int) -> bytes:
    """Reads up to the answer that every terminal gives, for PATIENCE_SECONDS at most."""
    answer, end = b"", monotonic() + PATIENCE_SECONDS
    while not END.search(answer) and (left := end - monotonic()) > 0:
        if select.select([keys], [], [], left)[0]:
            answer += os.read(keys, 1024)
    return answer
