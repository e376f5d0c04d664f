"""Memory that is given back goes to the system, where the C library can be told to."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from localspec.engine import memory


def test_what_was_freed_in_small_pieces_goes_back_to_the_system():
    """Pieces that the C library takes from its own heap, below its last one, which stays in use."""
    if not hasattr(memory.ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("only glibc keeps it, and gives it back")
    me, size = psutil.Process(), 64 << 20
    pieces: list[bytes | None] = [bytes([1]) * (16 << 10) for _ in range(size >> 14)]
    held = me.memory_info().rss
    pieces[:-1] = [None] * (len(pieces) - 1)
    memory.trim()
    assert held - me.memory_info().rss > size // 2


@pytest.mark.parametrize("fault", [OSError, TypeError, AttributeError])
def test_another_c_library_is_left_alone(fault: type[Exception], monkeypatch: pytest.MonkeyPatch):
    """Windows has none by that name, and musl no such function."""

    def absent(_: Any) -> Any:
        raise fault

    monkeypatch.setattr(memory.ctypes, "CDLL", absent)
    memory.trim()
