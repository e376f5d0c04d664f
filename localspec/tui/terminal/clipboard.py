"""The desktop's clipboard, by the program that keeps it; a file where there is none. Knows no screen and no terminal.

The terminal is asked to copy, too, and never says whether it did: not every one does, and tmux may keep it from it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from localspec.core import paths
from localspec.core.whole_file import write_whole

SECONDS = 2.0  # a display that does not answer must not keep a thread


def put(text: str) -> bool:
    """Whether some program has taken it."""
    content = text.encode("utf-16" if sys.platform == "win32" else "utf-8")
    return any(taken(command, content) for command in commands())


def commands() -> Iterator[list[str]]:
    """The programs that reach the clipboard of the user's own desktop; none for the far side of an SSH connection."""
    if os.environ.get("TMUX"):
        yield ["tmux", "load-buffer", "-w", "-"]  # tells the terminal, too
    if os.environ.get("WAYLAND_DISPLAY"):
        yield ["wl-copy"]
    if os.environ.get("DISPLAY"):
        yield ["xclip", "-selection", "clipboard"]
        yield ["xsel", "--clipboard", "--input"]
    if sys.platform in {"darwin", "win32"} and not os.environ.get("SSH_CONNECTION"):
        yield ["pbcopy" if sys.platform == "darwin" else "clip"]


def taken(command: list[str], content: bytes) -> bool:
    nowhere = subprocess.DEVNULL  # some of them stay and hold what they were given
    try:
        done = subprocess.run(command, input=content, stdout=nowhere, stderr=nowhere, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def keep(text: str) -> str:
    """Writes the text to a file, over what was copied last; returns a sentence that names it. OSError, UsageError."""
    file = paths.copied_file()
    write_whole(file, text.encode())
    return f"If pasting fails, the text is also in {file}."
