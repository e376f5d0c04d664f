"""Packs weights into records of bytes, a block of rows at a time, and unpacks them.

A scale belongs to one output and 64 inputs. Knows formats, no files and no models.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from localspec.core.errors import CheckpointError
from localspec.engine.cpu.formats import (
    BORDERS,
    GROUP,
    LEVELS,
    OUTPUTS,
    RECORD_BYTES,
    REFINEMENTS,
    SCALE_BYTES,
    SHARES,
    SMALLEST,
    PackedFormat,
    padded,
)

if TYPE_CHECKING:
    from localspec.engine.cpu.program import Program

ROWS_AT_ONCE = 1024  # peak memory is this many rows in float32, a few times over
BLOCKS_AT_ONCE = 4  # of a thread, compiled
TABLE = torch.tensor(LEVELS, dtype=torch.float32)


@dataclass(frozen=True, slots=True)
class Packed:
    """A linear in blocks: `data` is [blocks, groups, record] bytes, `bias` [blocks * 32] float32 or None."""

    weight_format: PackedFormat
    data: Tensor
    bias: Tensor | None = None

    @property
    def outputs(self) -> int:
        """Outputs, padded to whole blocks."""
        return int(self.data.shape[0]) * OUTPUTS

    @property
    def inputs(self) -> int:
        """Inputs, padded to whole groups."""
        return int(self.data.shape[1]) * GROUP

    @property
    def num_bytes(self) -> int:
        return self.data.nbytes + (0 if self.bias is None else self.bias.nbytes)


def empty(weight_format: PackedFormat, outputs: int, inputs: int) -> Tensor:
    """An empty buffer for a linear, padded to whole blocks and groups."""
    shape = (padded(outputs, OUTPUTS) // OUTPUTS, padded(inputs, GROUP) // GROUP, RECORD_BYTES[weight_format])
    return torch.empty(shape, dtype=torch.uint8)


def pack(weight: Tensor, weight_format: PackedFormat, program: Program | None = None) -> Tensor:
    """Packs [outputs, inputs] in any float dtype, already padded, into [blocks, groups, record].

    Uses the compiled engine on all cores, or torch without it, with the same bytes as the result."""
    data = empty(weight_format, *weight.shape)
    step = BLOCKS_AT_ONCE if program else ROWS_AT_ONCE // OUTPUTS

    def some(first: int) -> None:
        rows = weight[first * OUTPUTS : (first + step) * OUTPUTS].float().contiguous()
        pack_into(data[first : first + step], rows, weight_format, program)

    with ThreadPoolExecutor(torch.get_num_threads() if program else 1) as threads:
        for _ in threads.map(some, range(0, data.shape[0], step)):
            pass
    return data


def pack_into(data: Tensor, rows: Tensor, weight_format: PackedFormat, program: Program | None) -> None:
    """Packs float32 rows into `data`; CheckpointError where a weight is not finite."""
    if program:
        bits = 8 if weight_format == "int8" else 4
        sound = program.pack(bits, rows.data_ptr(), data.shape[0], data.shape[1], data.data_ptr())
    else:
        sound = bool(torch.isfinite(rows).all())
        data[:] = pack_rows(rows, weight_format)
    if not sound:
        raise CheckpointError("A weight is infinite or not a number.", hint="Download the model again.")


def pack_rows(rows: Tensor, weight_format: PackedFormat) -> Tensor:
    grouped = rows.view(rows.shape[0], -1, GROUP)
    scales, codes = quantise8(grouped) if weight_format == "int8" else quantise4(grouped)
    blocks, groups = rows.shape[0] // OUTPUTS, grouped.shape[1]
    data = torch.empty(blocks, groups, RECORD_BYTES[weight_format], dtype=torch.uint8)
    by_block = scales.view(blocks, OUTPUTS, groups).transpose(1, 2).contiguous()
    data[:, :, :SCALE_BYTES] = by_block.view(torch.uint8).view(blocks, groups, SCALE_BYTES)
    if weight_format == "int8":  # [block, half, 16, group, quad, 4] to [block, group, quad, half, 16, 4]
        laid = codes.view(blocks, 2, 16, groups, GROUP // 4, 4).permute(0, 3, 4, 1, 2, 5)
    else:
        pairs = codes.view(blocks, 2, 16, groups, GROUP // 8, 2, 4).permute(5, 0, 3, 4, 1, 2, 6)
        laid = pairs[0] | (pairs[1] << 4)
    data[:, :, SCALE_BYTES:] = laid.reshape(blocks, groups, -1)
    return data


def quantise8(grouped: Tensor) -> tuple[Tensor, Tensor]:
    """Quantises to int8: scales [rows, groups] in bfloat16, and bytes w + 128 [rows, groups, 64]."""
    top = grouped.abs().amax(-1)
    scales = torch.where(top > SMALLEST, top / 127, 0.0).bfloat16()
    codes = (grouped * inverse(scales)).round_().clamp_(-127, 127)
    return scales, (codes + 128).to(torch.uint8)


def quantise4(grouped: Tensor) -> tuple[Tensor, Tensor]:
    """Quantises to int4, with the scale of least squared error among some; codes are 0..15."""
    high, top = grouped.amax(-1), grouped.abs().amax(-1)
    far = torch.where(high == top, top, -top)
    shares = best_scale(grouped * torch.where(top > SMALLEST, 1 / far, 0.0)[..., None])
    scales = torch.where(top > SMALLEST, far * shares, 0.0).bfloat16()
    return scales, nearest(grouped * inverse(scales)).to(torch.uint8)


def best_scale(grouped: Tensor) -> Tensor:
    """The best scale of groups whose farthest weight is 1."""
    scale, merit = fitted(grouped, torch.full(grouped.shape[:-1], SHARES[0]))
    tries = [torch.full_like(scale, share) for share in SHARES[1:]] + [None] * REFINEMENTS
    for start in tries:
        other, its_merit = fitted(grouped, scale if start is None else start)
        scale = torch.where(its_merit > merit, other, scale)
        merit = torch.where(its_merit > merit, its_merit, merit)
    return scale


def fitted(grouped: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The scale that fits the levels which `scale` chooses, and how much of the sum of squares it explains."""
    levels = TABLE[nearest(grouped * (1 / scale)[..., None])]
    squares, product = total(levels * levels), total(grouped * levels)
    return product / squares, product * (product / squares)


def total(grouped: Tensor) -> Tensor:
    """The sum of each 64, in the order of the compiled code."""
    lanes: Tensor
    lanes, *others = torch.split(grouped, 16, dim=-1)
    for other in others:
        lanes = lanes + other
    for half in (8, 4, 2, 1):
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def nearest(scaled: Tensor) -> Tensor:
    """The codes of the nearest levels."""
    return torch.bucketize(scaled, torch.tensor(BORDERS))


def inverse(scales: Tensor) -> Tensor:
    wide = scales.float()[..., None]
    return torch.where(wide != 0, 1 / wide, 0.0)


def unpack(data: Tensor, weight_format: PackedFormat) -> Tensor:
    """Unpacks to [outputs, inputs] float32: exactly what the kernels multiply with."""
    blocks, groups = data.shape[:2]
    scales = data[:, :, :SCALE_BYTES].contiguous().view(torch.bfloat16).float()  # [blocks, groups, 32]
    laid = data[:, :, SCALE_BYTES:]
    if weight_format == "int8":
        levels = laid.float() - 128
    else:
        pairs = laid.reshape(blocks, groups, GROUP // 8, 1, 2, 16, 4)
        levels = TABLE[torch.cat((pairs & 15, pairs >> 4), dim=3).int()]
    shaped = levels.reshape(blocks, groups, GROUP // 4, 2, 16, 4).permute(0, 3, 4, 1, 2, 5)
    weight = shaped.reshape(blocks, OUTPUTS, groups, GROUP) * scales.transpose(1, 2)[..., None]
    return weight.reshape(blocks * OUTPUTS, groups * GROUP)


def pad_rows(weight: Tensor, heads: int, size: int) -> Tensor:
    """Pads each head's rows to whole vectors: [heads * size, inputs] to [heads * padded, inputs]."""
    wide = padded(size, 16)
    shaped = weight.view(heads, size, -1)
    return torch.nn.functional.pad(shaped, (0, 0, 0, wide - size)).reshape(heads * wide, -1)


def pad_to(weight: Tensor, outputs: int, inputs: int) -> Tensor:
    """Pads with zeros below and to the right."""
    return torch.nn.functional.pad(weight, (0, inputs - weight.shape[1], 0, outputs - weight.shape[0]))


def interleave(gate: Tensor, up: Tensor) -> Tensor:
    """Interleaves two [inner, …] to [2 * inner, …], sixteen of each in turn, `inner` padded to whole groups."""
    inner = padded(gate.shape[0], GROUP)
    both = [
        torch.nn.functional.pad(part, (0,) * (2 * part.dim() - 1) + (inner - part.shape[0],)) for part in (gate, up)
    ]
    return torch.stack([part.view(inner // 16, 16, *part.shape[1:]) for part in both], dim=1).flatten(0, 2)
