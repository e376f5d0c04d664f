"""Whether the network is switched off by the hub's own variables. Imports nothing of the hub's library."""

from __future__ import annotations

import os

VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
YES = {"1", "ON", "YES", "TRUE"}


def is_offline() -> bool:
    """Whether a variable says so, as the hub's library reads it."""
    return any(os.environ.get(name, "").upper() in YES for name in VARIABLES)
