"""The table that `localspec ps` prints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.history.text.columns import columns
from localspec.serve.registry import Running

HEADS = ("ADDRESS", "MODEL", "STATE", "FORMAT", "SIZE", "CONTEXT", "SPECULATION", "ANSWERING", "WAITING", "UNTIL")
RIGHT = {4, 5, 7, 8}
UNKNOWN = "–"


def servers_table(servers: Sequence[Running]) -> str:
    return columns([HEADS, *map(row, servers)], right=RIGHT)


def row(server: Running) -> tuple[str, ...]:
    known = one_line(server.model), one_line(server.state), where(server), size(server)
    context = f"{server.context:,}" if server.context else UNKNOWN
    counts = str(server.answering), str(server.waiting)
    return server.address, *known, context, one_line(server.speculation) or UNKNOWN, *counts, until(server)


def where(server: Running) -> str:
    """The weight format, and the device."""
    return one_line(f"{server.quant} on {server.device}") if server.device else UNKNOWN


def size(server: Running) -> str:
    return size_words(server.num_bytes) if server.num_bytes else UNKNOWN


def until(server: Running) -> str:
    """The time at which the model is unloaded, where nothing is answered and one was set."""
    if server.until is None or server.answering:
        return UNKNOWN
    return datetime.fromtimestamp(server.until).strftime("%H:%M")
