"""Remembers what a plain round costs on this machine, so that the next start can show a speed-up at once.

One small JSON file; a damaged one is an empty one. Knows nothing about how the times were measured.
"""

from __future__ import annotations

import json
from contextlib import suppress

from localspec import paths
from localspec.errors import UsageError


def recall(key: str) -> float | None:
    """Mean milliseconds of a plain round under this key."""
    return _read().get(key)


def remember(key: str, plain_ms: float) -> None:
    with suppress(OSError, UsageError):  # a read-only disk costs the next start its head start, nothing else
        paths.calibration_file().write_text(json.dumps({**_read(), key: plain_ms}, indent=1), encoding="utf-8")


def _read() -> dict[str, float]:
    try:
        read = json.loads(paths.calibration_file().read_text(encoding="utf-8"))
        return {str(key): float(value) for key, value in read.items()}
    except (OSError, UsageError, ValueError, TypeError, AttributeError):
        return {}
