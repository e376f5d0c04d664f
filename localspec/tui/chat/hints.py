"""How often something was explained, over all starts: one small file. A damaged one counts from the beginning."""

from __future__ import annotations

from contextlib import suppress
from threading import Lock

import msgspec

from localspec.core import paths
from localspec.core.errors import UsageError
from localspec.core.plain_file import read_small
from localspec.core.whole_file import write_whole

COUNTING = Lock()


def count(name: str) -> int:
    """Once more; how often that makes. Waits for the disk. Where nothing can be kept it is always the first time."""
    with COUNTING:
        known = read()
        known[name] = max(known.get(name, 0), 0) + 1
        with suppress(OSError, UsageError):
            write_whole(paths.hints_file(), msgspec.json.encode(known))
        return known[name]


def read() -> dict[str, int]:
    try:
        return msgspec.json.decode(read_small(paths.hints_file()), type=dict[str, int])
    except (OSError, UsageError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
