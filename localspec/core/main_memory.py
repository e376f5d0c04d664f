"""How much main memory there is for a model: what the machine has free, or less where a control group's limit is lower,
as a container or a cluster's job has one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
MINE = Path("/proc/self/cgroup")  # its group in every hierarchy; in a container often "/", and GROUPS shows its own
VERSIONS = (  # of control groups: controller, where its hierarchy begins, limit, usage, what of it would be dropped
    ("", ".", "memory.max", "memory.current", ("inactive_file", "active_file")),
    (
        "memory",
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)


def available_bytes() -> int:
    """Free, or held by files that the system would drop."""
    import psutil  # a machine that is only measured need not have it

    return min((int(psutil.virtual_memory().available), *left_in_groups()))


def trim() -> None:
    """What the C library keeps for the next allocation goes back to the system: 70 MB, once a model was packed."""
    with suppress(AttributeError, OSError, TypeError):  # only glibc can be asked to
        ctypes.CDLL(None).malloc_trim(0)


def left_in_groups() -> Iterator[int]:
    """Below the limit of each group that this process is in: "max" and files of another form say nothing."""
    for controller, top, limit, used, droppable in VERSIONS:
        for folder in folders(GROUPS / top, controller):
            with suppress(OSError, ValueError, IndexError):
                held = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
                files = sum(int(words[1]) for words in held if words[0] in droppable)
                yield max(int((folder / limit).read_text()) - int((folder / used).read_text()) + files, 0)


def folders(top: Path, controller: str) -> Iterator[Path]:
    """Of a hierarchy: its top, and the groups below it down to this process's."""
    yield top
    with suppress(OSError, ValueError):
        for line in MINE.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(",") and ".." not in path.split("/"):
                parts = Path(path.lstrip("/")).parts
                yield from (top.joinpath(*parts[: depth + 1]) for depth in range(len(parts)))
