"""Reads how much memory this process has used."""

from __future__ import annotations

import sys

import psutil


def peak_bytes() -> int:
    """The most memory this process ever held; the present figure where the system keeps no peak."""
    try:
        import resource
    except ImportError:  # Windows
        return int(psutil.Process().memory_info().rss)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
