"""A progress bar on stderr. Knows nothing about what is measured."""

from __future__ import annotations

import sys
from collections.abc import Callable


def bar(progress: bool) -> Callable[[float], None]:
    """What is told the share that is done, and shows it; or shows nothing."""
    return draw if progress else lambda _share: None


def draw(share: float) -> None:
    end = "\n" if share >= 1 else ""
    print(f"\rmeasuring {'█' * round(30 * share):░<30} {share:4.0%}", end=end, file=sys.stderr, flush=True)
