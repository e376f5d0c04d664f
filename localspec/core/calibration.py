"""Measurements of a model on this machine: the best setting that a sweep found."""

from __future__ import annotations

import msgspec

from localspec.core import paths
from localspec.core.events import DraftLength
from localspec.core.json_store import JsonStore
from localspec.core.requests import WrittenLength


class Calibration(msgspec.Struct, frozen=True, omit_defaults=True):
    """`exit_layer` and `k`: the fastest early exit."""

    exit_layer: int | None = None
    k: WrittenLength = "auto"


STORE = JsonStore(paths.calibration_file, Calibration)


def recall(key: str) -> Calibration:
    return STORE.read().get(key, Calibration())


def remember(key: str, **known: DraftLength | None) -> bool:
    """Adds to what is known. False: it cannot be written, and the next start measures again."""
    return STORE.put(key, msgspec.structs.replace(recall(key), **known))
