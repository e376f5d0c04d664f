"""The main memory available to a model: what the machine has free, or less under a control group's limit, as in a
container or a cluster's job."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CACHED_BYTES = 64 << 20  # less might be read from a processor's cache
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
    """Available bytes: free, or used by file caches that the system would drop."""
    import psutil  # a machine that is only measured need not have it

    return min((int(psutil.virtual_memory().available), *left_in_groups()))


def trim() -> None:
    """Returns the C library's free memory to the system: 70 MB after packing a model."""
    with suppress(AttributeError, OSError, TypeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


def left_in_groups() -> Iterator[int]:
    """The bytes left in each control group of this process; a limit of "max" is left out."""
    for controller, top, limit, used, droppable in VERSIONS:
        for folder in folders(GROUPS / top, controller):
            with suppress(OSError, ValueError, IndexError):
                held = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
                files = sum(int(words[1]) for words in held if words[0] in droppable)
                yield max(int((folder / limit).read_text()) - int((folder / used).read_text()) + files, 0)


def folders(top: Path, controller: str) -> Iterator[Path]:
    """The folders of a hierarchy: its top, and the groups down to this process's."""
    yield top
    with suppress(OSError, ValueError):
        for line in MINE.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(",") and ".." not in path.split("/"):
                parts = Path(path.lstrip("/")).parts
                yield from (top.joinpath(*parts[: depth + 1]) for depth in range(len(parts)))
