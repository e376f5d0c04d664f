"""The processor of this machine: its name, and the cores that this process may use. Knows no instruction set."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def name() -> str:
    """The processor's marketing name, where the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def physical_cores() -> int:
    import psutil  # a machine that is only measured need not have it

    return psutil.cpu_count(logical=False) or 1


def usable_threads() -> int:
    """The number of threads that may run at once: taskset or a container may leave fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
