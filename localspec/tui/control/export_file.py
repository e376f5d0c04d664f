"""Names the file of an exported chat: after its title, and never one that exists."""

from __future__ import annotations

import os
import re
from pathlib import Path

from localspec.core.sanitize import one_line

LONGEST_NAME = 50  # letters; a title has more, and a file name at most 255 bytes
NO_WORD = re.compile(r"[^\w]+")


def target(typed: str, title: str, ending: str) -> Path:
    """The typed path, or a name of ours in that folder or the current one; with -2, -3 … where the name is in use."""
    path = Path(os.path.expanduser(typed))
    return free(path / name(title, ending) if os.path.isdir(path) else path)


def name(title: str, ending: str) -> str:
    """chat-what-is-a-draft.md"""
    words = NO_WORD.sub("-", one_line(title)).lower().strip("-_")[:LONGEST_NAME].rstrip("-_")
    return f"chat-{words}.{ending}" if words else f"chat.{ending}"


def free(path: Path) -> Path:
    number, found = 2, path
    while os.path.lexists(found):
        found = path.with_stem(f"{path.stem}-{number}")
        number += 1
    return found
