"""The memory layout of packed weights: records of 32 outputs × 64 inputs, in the order in which a forward reads them.

A record is 32 bfloat16 scales, then for each four inputs of int8 two runs of 16 outputs × 4 inputs, as bytes w + 128;
int4 packs two such fours in a byte, low nibble first, each nibble an index into CODES. Knows no tensors.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

PackedFormat = Literal["int8", "int4"]
FINER: PackedFormat = "int8"  # for what loses much in four bits

OUTPUTS = 32  # of a record: two vectors of sixteen
GROUP = 64  # inputs that share a scale, in weights and in activations
SCALE_BYTES = 2 * OUTPUTS
RECORD_BYTES: dict[PackedFormat, int] = {
    "int8": SCALE_BYTES + OUTPUTS * GROUP,
    "int4": SCALE_BYTES + OUTPUTS * GROUP // 2,
}
RECORD8, RECORD4 = RECORD_BYTES["int8"], RECORD_BYTES["int4"]  # compiled code reads no dicts

# Levels of a 4-bit weight as bytes w + 128: zero is one of them, and they reach farther on one side, for a scale may be
# negative: so each group puts its heavier side there. Fitted to normal groups (docs/measurements-archive.md, "4-bit
# levels").
CODES = (22, 47, 65, 80, 93, 105, 117, 128, 139, 150, 162, 175, 189, 206, 226, 255)
LEVELS = tuple(code - 128 for code in CODES)
BORDERS = tuple((low + high) / 2 for low, high in pairwise(LEVELS))

# A group's scale is looked for among these shares of its farthest weight, then fitted to the levels it chose.
SHARES = tuple(share / 127 for share in (0.82, 0.87, 0.92, 0.97, 1.02, 1.07, -1.0, -1.06, -1.12, -1.18))
REFINEMENTS = 2
SMALLEST = 2.0**-100  # a group that does not reach it is zero: the inverse of its scale might be infinite


def padded(size: int, multiple: int) -> int:
    """The size rounded up to a multiple."""
    return -(-size // multiple) * multiple
