"""Replaces a file so that it is the old one or the new one, never half of it, whoever stops the program."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Any error leaves the old file and nothing beside it. The folder is made where it is missing."""
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
