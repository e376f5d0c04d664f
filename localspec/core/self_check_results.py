"""Remembers the largest error that each self-check measured on this machine, by a fingerprint of all it depends on.

Knows neither what is compared nor which error is too large.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import inf, isnan

from localspec.core import paths
from localspec.core.json_store import JsonStore

LARGEST = sys.float_info.max  # stands for infinity, which JSON cannot write
STORE = JsonStore(paths.self_checks_file, float)


def difference_of(key: str, measure: Callable[[], float]) -> float:
    """The difference that an earlier start measured, else measures and remembers it; JSON has no NaN to keep."""
    known = STORE.read().get(key)
    if known is not None:
        return known if known < LARGEST else inf
    found = measure()
    if not isnan(found):
        STORE.put(key, min(found, LARGEST))
    return found
