"""How often each hint was shown, over all starts."""

from __future__ import annotations

from threading import Lock

from localspec.core import paths
from localspec.core.json_store import JsonStore

STORE = JsonStore(paths.hints_file, int)
COUNTING = Lock()


def count(name: str) -> int:
    """Counts once more, and returns how often that makes. Waits for the disk."""
    with COUNTING:
        times = max(STORE.read().get(name, 0), 0) + 1
        STORE.put(name, times)
        return times
