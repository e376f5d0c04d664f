"""How weights lie in memory: records of 32 outputs × 64 inputs, one after another as a forward reads them.

A record is 32 bfloat16 scales, then for each four inputs of int8 two runs of 16 outputs × 4 inputs, as bytes w + 128;
int4 packs two such fours in a byte, low nibble first, each nibble an index into CODES. Knows no tensors.
"""

from __future__ import annotations

from typing import Literal

Format = Literal["int8", "int4"]

OUTPUTS = 32  # of a record: two vectors of sixteen
GROUP = 64  # inputs that share a scale, in weights and in activations
SCALE_BYTES = 2 * OUTPUTS
RECORD_BYTES: dict[Format, int] = {"int8": SCALE_BYTES + OUTPUTS * GROUP, "int4": SCALE_BYTES + OUTPUTS * GROUP // 2}

# Levels of a 4-bit weight as bytes w + 128: placed for weights that are nearly normal within a group.
CODES = (1, 35, 54, 70, 84, 97, 109, 120, 131, 142, 154, 167, 181, 197, 217, 255)


def padded(size: int, multiple: int) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple
