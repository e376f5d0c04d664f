"""What a model takes on this machine in each weight format, part by part, from its headers alone.

Knows nothing about torch, the network or where the files come from.
"""

from __future__ import annotations

from typing import Literal

from localspec.core.events import Record

FitWord = Literal["fits", "from disk", "too large"]


class FormatFit(Record, frozen=True):
    """The memory that a weight format takes, by part, and whether it fits."""

    quant: str
    word: FitWord
    target_bytes: int
    drafter_bytes: int
    kv_bytes: int
    work_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.target_bytes + self.drafter_bytes + self.kv_bytes + self.work_bytes


class FitReport(Record, frozen=True):
    """What a model takes on this machine in each format, best first. `chosen`: the format that `auto` would load, or
    the one asked for; "" where none fits. `word`: as the list of models shows it. `approximate`: only the number of
    parameters is known."""

    name: str
    device: str
    context: int
    free_bytes: int
    formats: tuple[FormatFit, ...]
    chosen: str
    word: str
    drafter: str = ""
    approximate: bool = False
