"""Weights come to lie in large pages where the system has them, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from localspec.engine.cpu import pages
from localspec.engine.cpu.pages import in_large_pages

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
LARGE = 64 << 20


def wants_large_pages(room: Tensor) -> bool:
    """The system was told so of the mapping that has the middle of the room; whether it has any left is its affair."""
    middle = room.data_ptr() + room.nbytes // 2
    inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition(" ")
        if "-" in name and not name.endswith(":"):
            first, last = (int(end, 16) for end in name.split("-"))
            inside = first <= middle < last
        elif inside and name == "VmFlags:":
            return "hg" in rest.split()
    raise AssertionError("no mapping has it")


@pytest.mark.skipif(not SETTING.exists() or "[never]" in SETTING.read_text(), reason="this system has no large pages")
def test_a_large_room_lies_in_large_pages() -> None:
    room = in_large_pages(torch.empty(LARGE, dtype=torch.uint8)).fill_(7)
    assert wants_large_pages(room)
    assert int(room.min()) == int(room.max()) == 7


@pytest.mark.parametrize("size", [0, 1, 100, 4095, 4097, 100_000])
def test_any_room_is_given_back_as_it_was(size: int) -> None:
    around = torch.arange(size + 200, dtype=torch.int64)
    room = around[100 : 100 + size]
    assert in_large_pages(room) is room
    assert torch.equal(around, torch.arange(size + 200))


def test_a_system_without_them_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ADVICE", None)
    assert in_large_pages(torch.zeros(LARGE // 8)).sum() == 0
