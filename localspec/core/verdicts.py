"""How far off each computation was that has been checked on this machine, by a fingerprint of all that it depends on.

One small JSON file; a damaged one is an empty one. Knows nothing about what is compared, and not how far is too far.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

from localspec.core import paths
from localspec.core.errors import UsageError
from localspec.core.plain_file import read_small
from localspec.core.whole_file import write_whole


def difference_of(key: str, measure: Callable[[], float]) -> float:
    """As it was measured at an earlier start, else now, and remembered."""
    known = read()
    if key not in known:
        known[key] = measure()
        remember(known)
    return known[key]


def remember(known: dict[str, float]) -> None:
    with suppress(OSError, UsageError):  # a read-only disk costs the next start this check again
        write_whole(paths.admissions_file(), json.dumps(known, indent=1).encode())


def read() -> dict[str, float]:
    try:
        found = json.loads(read_small(paths.admissions_file()))
        return {str(key): float(value) for key, value in found.items()}
    except (OSError, UsageError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
