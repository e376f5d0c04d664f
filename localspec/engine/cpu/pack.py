"""Weights to blocks of bytes: one tensor at a time, a block of rows at a time, and back again.

A scale belongs to one output and 64 inputs. Knows formats, no files and no models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from localspec.engine.cpu.formats import CODES, GROUP, OUTPUTS, RECORD_BYTES, SCALE_BYTES, Format, padded
from localspec.errors import CheckpointError

ROWS_AT_ONCE = 1024  # peak memory is this many rows in float32, a few times over
LEVELS = torch.tensor(CODES, dtype=torch.float32) - 128
HALVES = torch.tensor([0.5])
TRIES = torch.linspace(0.75, 1.05, 13)  # of the scale that just reaches the greatest weight


@dataclass(frozen=True, slots=True)
class Packed:
    """A linear in blocks: `data` is [blocks, groups, record] bytes, `bias` [blocks * 32] float32 or None."""

    kind: Format
    data: Tensor
    bias: Tensor | None = None

    @property
    def outputs(self) -> int:
        """Padded."""
        return int(self.data.shape[0]) * OUTPUTS

    @property
    def inputs(self) -> int:
        """Padded."""
        return int(self.data.shape[1]) * GROUP

    @property
    def num_bytes(self) -> int:
        return self.data.nbytes + (0 if self.bias is None else self.bias.nbytes)


def empty(kind: Format, outputs: int, inputs: int) -> Tensor:
    """Room for a linear, padded to whole blocks and groups."""
    shape = (padded(outputs, OUTPUTS) // OUTPUTS, padded(inputs, GROUP) // GROUP, RECORD_BYTES[kind])
    return torch.empty(shape, dtype=torch.uint8)


def pack(weight: Tensor, kind: Format) -> Tensor:
    """[outputs, inputs] in any float dtype, outputs and inputs padded already, to [blocks, groups, record]."""
    data = empty(kind, *weight.shape)
    step = ROWS_AT_ONCE // OUTPUTS
    for first in range(0, data.shape[0], step):
        rows = weight[first * OUTPUTS : (first + step) * OUTPUTS].float()
        if not torch.isfinite(rows).all():
            raise CheckpointError("A weight is not a number or infinite.", hint="Fetch the model again.")
        data[first : first + step] = pack_rows(rows, kind)
    return data


def pack_rows(rows: Tensor, kind: Format) -> Tensor:
    grouped = rows.view(rows.shape[0], -1, GROUP)
    scales, codes = quantise8(grouped) if kind == "int8" else quantise4(grouped)
    blocks, groups = rows.shape[0] // OUTPUTS, grouped.shape[1]
    data = torch.empty(blocks, groups, RECORD_BYTES[kind], dtype=torch.uint8)
    by_block = scales.view(blocks, OUTPUTS, groups).transpose(1, 2).contiguous()
    data[:, :, :SCALE_BYTES] = by_block.view(torch.uint8).view(blocks, groups, SCALE_BYTES)
    if kind == "int8":  # [block, half, 16, group, quad, 4] to [block, group, quad, half, 16, 4]
        laid = codes.view(blocks, 2, 16, groups, GROUP // 4, 4).permute(0, 3, 4, 1, 2, 5)
    else:
        pairs = codes.view(blocks, 2, 16, groups, GROUP // 8, 2, 4).permute(5, 0, 3, 4, 1, 2, 6)
        laid = pairs[0] | (pairs[1] << 4)
    data[:, :, SCALE_BYTES:] = laid.reshape(blocks, groups, -1)
    return data


def quantise8(grouped: Tensor) -> tuple[Tensor, Tensor]:
    """Scales [rows, groups] in bfloat16, and bytes w + 128 [rows, groups, 64]."""
    scales = (grouped.abs().amax(-1) / 127).bfloat16()
    codes = (grouped * inverse(scales)).round_().clamp_(-127, 127)
    return scales, (codes + 128).to(torch.uint8)


def quantise4(grouped: Tensor) -> tuple[Tensor, Tensor]:
    """The scale, of some tried, with the least squared error; codes 0..15."""
    top, best, chosen = grouped.abs().amax(-1) / 127, None, None
    for share in TRIES.tolist():
        scales = (top * share).bfloat16()
        error = (nearest(grouped, scales)[1] - grouped).square_().sum(-1)
        if best is None or chosen is None:
            best, chosen = error, scales
        else:
            chosen = torch.where(error < best, scales, chosen)
            best = torch.minimum(error, best)
    assert chosen is not None
    return chosen, nearest(grouped, chosen)[0].to(torch.uint8)


def nearest(grouped: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Codes of the nearest levels, and what they stand for."""
    borders = (LEVELS[1:] + LEVELS[:-1]) / 2
    codes = torch.bucketize(grouped * inverse(scales), borders)
    return codes, LEVELS[codes] * scales.float()[..., None]


def inverse(scales: Tensor) -> Tensor:
    wide = scales.float()[..., None]
    return torch.where(wide > 0, 1 / wide, 0.0)


def unpack(data: Tensor, kind: Format) -> Tensor:
    """[outputs, inputs] float32: exactly what the kernels multiply with."""
    blocks, groups = data.shape[:2]
    scales = data[:, :, :SCALE_BYTES].contiguous().view(torch.bfloat16).float()  # [blocks, groups, 32]
    laid = data[:, :, SCALE_BYTES:]
    if kind == "int8":
        levels = laid.float() - 128
    else:
        pairs = laid.reshape(blocks, groups, GROUP // 8, 1, 2, 16, 4)
        levels = LEVELS[torch.cat((pairs & 15, pairs >> 4), dim=3).int()]
    shaped = levels.reshape(blocks, groups, GROUP // 4, 2, 16, 4).permute(0, 3, 4, 1, 2, 5)
    weight = shaped.reshape(blocks, OUTPUTS, groups, GROUP) * scales.transpose(1, 2)[..., None]
    return weight.reshape(blocks * OUTPUTS, groups * GROUP)


def pad_rows(weight: Tensor, heads: int, size: int) -> Tensor:
    """[heads * size, inputs] with each head's rows padded to whole vectors: [heads * padded, inputs]."""
    wide = padded(size, 16)
    shaped = weight.view(heads, size, -1)
    return torch.nn.functional.pad(shaped, (0, 0, 0, wide - size)).reshape(heads * wide, -1)


def pad_to(weight: Tensor, outputs: int, inputs: int) -> Tensor:
    """Zeros below and to the right."""
    return torch.nn.functional.pad(weight, (0, inputs - weight.shape[1], 0, outputs - weight.shape[0]))


def interleave(gate: Tensor, up: Tensor) -> Tensor:
    """[inner, …] twice to [2 * inner, …], sixteen of each in turn, `inner` padded to whole groups."""
    inner = padded(gate.shape[0], GROUP)
    both = [torch.nn.functional.pad(part, (0,) * (2 * part.dim() - 1) + (inner - part.shape[0],)) for part in (gate, up)]
    return torch.stack([part.view(inner // 16, 16, *part.shape[1:]) for part in both], dim=1).flatten(0, 2)


def root(size: int) -> float:
    return 1 / math.sqrt(size)
