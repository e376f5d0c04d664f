"""A short head in torch: the first rows of a linear where they lie, and float copies of some others.

Knows formats, and no words.
"""

from __future__ import annotations

import torch
from torch import Tensor

from localspec.engine.lengths import Lengths
from localspec.engine.linear import Cuttable, Dense, Linear


class TorchShortHead:
    """rows [n, hidden] to [n, first + slots]."""

    def __init__(self, head: Cuttable, first: Linear, lengths: Lengths) -> None:
        self.whole, self.first, self.lengths = head, first, lengths
        self.others = Dense(head.rows(torch.arange(lengths.slots)))

    @property
    def num_bytes(self) -> int:
        return self.others.num_bytes

    @property
    def bytes_read(self) -> int:
        return self.first.num_bytes + self.num_bytes

    @property
    def outputs(self) -> int:
        return self.lengths.total

    def copy(self, slots: Tensor, ids: Tensor) -> None:
        self.others.weight[slots] = self.whole.rows(ids)

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.cat((self.first(rows), self.others(rows)), dim=-1)


def shortened(head: Linear, lengths: Lengths) -> TorchShortHead | None:
    """The short head of these lengths; None where the format cannot be cut."""
    if not isinstance(head, Cuttable):
        return None
    first = head.cut(lengths.first)
    return TorchShortHead(head, first, lengths) if first else None
