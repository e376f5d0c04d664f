"""The key that clients need: from the environment, or from a file that only its user can read; never from a flag."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.core.errors import UsageError
from localspec.core.plain_file import read_small

VARIABLE = "LOCALSPEC_API_KEY"
LONGEST = 1024


def find_key(file: Path | None) -> str | None:
    """The key of this file, else of the environment; UsageError if it is not a key, or others could read it."""
    if file is not None:
        return checked(read(file), f"the file '{file}'")
    given = os.environ.get(VARIABLE)
    return None if given is None else checked(given, VARIABLE)


def read(file: Path) -> str:
    try:
        content, mode = read_small(file), file.stat().st_mode
    except OSError as fault:
        raise UsageError(
            f"The key file '{file}' cannot be read ({fault.strerror}).", hint="Give a file that can be read."
        ) from fault
    if os.name != "nt" and mode & 0o077:
        raise UsageError(f"Others can read the key file '{file}'.", hint=f"Run: chmod 600 {file}")
    try:
        return content.decode()
    except UnicodeDecodeError as fault:
        raise UsageError(f"The key file '{file}' is not text.", hint="Write one line into it.") from fault


def checked(key: str, source: str) -> str:
    key = key.strip()
    if not key or len(key) > LONGEST or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(
            f"The key in {source} is not one word of printable ASCII.", hint="Make one: openssl rand -hex 24"
        )
    return key
