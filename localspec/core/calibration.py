"""What was measured of a model on this machine: the cost of a plain round, and what a sweep found best.

One small JSON file; a damaged one is an empty one. Knows nothing about how anything was measured.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from localspec.core import paths
from localspec.core.errors import UsageError
from localspec.core.plain_file import read_small
from localspec.core.whole_file import write_whole


class Calibration(msgspec.Struct, frozen=True, omit_defaults=True):
    """`plain_ms`: mean milliseconds of a plain round. `exit_layer` and `k`: the fastest early exit; earlier versions
    wrote `k` as text."""

    plain_ms: float | None = None
    exit_layer: int | None = None
    k: int | str = "auto"


FILE = dict[str, Calibration]


def recall(key: str) -> Calibration:
    return read().get(key, Calibration())


def remember(key: str, **known: float | str | None) -> bool:
    """Beside what was known. False: it could not be written, which costs the next start its head start."""
    with suppress(OSError, UsageError):
        old = read()
        new = {**old, key: msgspec.structs.replace(old.get(key, Calibration()), **known)}
        write_whole(paths.calibration_file(), msgspec.json.format(msgspec.json.encode(new)))
        return True
    return False


def read() -> FILE:
    try:
        return msgspec.json.decode(read_small(paths.calibration_file()), type=FILE)
    except (OSError, UsageError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
