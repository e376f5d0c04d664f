"""How much main memory there is for a model: what the machine has free, or less where a container's limit is lower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")  # Linux shows a container its own control group there
VERSIONS = (  # of control groups: where the limit is, what is used, and how much of that the system would give up
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


def available_bytes() -> int:
    """Free, or held by files that the system would drop."""
    import psutil  # a machine that is only measured need not have it

    return min((int(psutil.virtual_memory().available), *left_in_group()))


def left_in_group() -> Iterator[int]:
    """Below the limit of the container, where there is one: "max" and files of another form say nothing."""
    for limit, used, statistics, droppable in VERSIONS:
        with suppress(OSError, ValueError):
            lines = (GROUPS / statistics).read_text().splitlines()
            dropped = next((int(line.split()[1]) for line in lines if line.startswith(f"{droppable} ")), 0)
            yield max(int((GROUPS / limit).read_text()) - int((GROUPS / used).read_text()) + dropped, 0)
