"""The table that `localspec ps` prints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from localspec.core.sanitize import one_line
from localspec.history.text.columns import columns
from localspec.serve.running import Running

HEADS = ("ADDRESS", "MODEL", "SINCE", "STATE", "SPECULATION", "ANSWERING", "WAITING")


def servers_table(servers: Sequence[Running]) -> str:
    return columns([HEADS, *map(row, servers)], right={5, 6})


def row(server: Running) -> tuple[str, ...]:
    since = datetime.fromtimestamp(server.since).strftime("%Y-%m-%d %H:%M")
    counts = str(server.answering), str(server.waiting)
    speculation = one_line(server.speculation) or "–"
    return server.address, one_line(server.model), since, server.state, speculation, *counts
