"""A short head in packed blocks: the first ones where they lie, and copies of other outputs' bytes behind them.

Its logits are bit for bit those of the whole head. Knows no words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from localspec.engine.cpu import layout as at
from localspec.engine.cpu.formats import OUTPUTS, SCALE_BYTES
from localspec.engine.cpu.pack import Packed
from localspec.engine.cpu.tables import describe_linear, table
from localspec.engine.lengths import Lengths


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class PackedShortHead:
    """`whole`: the head; `first`: its first blocks; `others`: as many blocks as there are slots. `linears`: a table of
    these two, which one phase computes together."""

    whole: Packed
    first: Packed
    others: Packed
    linears: np.ndarray

    @property
    def num_bytes(self) -> int:
        return self.others.num_bytes

    @property
    def bytes_read(self) -> int:
        return self.first.num_bytes + self.num_bytes

    @property
    def outputs(self) -> int:
        return self.first.outputs + self.others.outputs

    def copy(self, slots: Tensor, ids: Tensor) -> None:
        for mine, theirs in zip(parts(self.others.data), parts(self.whole.data), strict=True):
            mine[slots // OUTPUTS, :, :, slots // 16 % 2, slots % 16] = theirs[
                ids // OUTPUTS, :, :, ids // 16 % 2, ids % 16
            ]


def parts(data: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and codes of [blocks, groups, record] as views [blocks, groups, runs, 2, 16, bytes]: an output is half a
    block's lane."""
    blocks, groups, record = data.shape
    scales = data[:, :, :SCALE_BYTES].view(blocks, groups, 1, 2, 16, 2)
    codes = data[:, :, SCALE_BYTES:].view(blocks, groups, (record - SCALE_BYTES) // (4 * OUTPUTS), 2, 16, 4)
    return scales, codes


def shortened(head: Packed, lengths: Lengths) -> PackedShortHead | None:
    """The short head of these lengths; None unless they are whole blocks of weights alone."""
    if head.bias is not None or lengths.first % OUTPUTS or lengths.slots % OUTPUTS:
        return None
    blocks, slots = lengths.first // OUTPUTS, lengths.slots // OUTPUTS
    first, others = replace(head, data=head.data[:blocks]), replace(head, data=torch.zeros_like(head.data[:slots]))
    linears = table(2 * at.LINEAR_BYTES)
    describe_linear(linears, 0, first)
    describe_linear(linears, at.LINEAR_BYTES, others)
    linears[at.MORE // 8] = slots
    return PackedShortHead(head, first, others, linears)
