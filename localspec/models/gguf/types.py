"""The types that values and tensors of a GGUF file may have, as ggml numbers them."""

from __future__ import annotations

from typing import NamedTuple


class Blocks(NamedTuple):
    """A tensor's type: a block of `numbers` values of a row takes `num_bytes`."""

    name: str
    numbers: int
    num_bytes: int


TENSORS = {
    0: Blocks("F32", 1, 4),
    1: Blocks("F16", 1, 2),
    2: Blocks("Q4_0", 32, 18),
    3: Blocks("Q4_1", 32, 20),
    6: Blocks("Q5_0", 32, 22),
    7: Blocks("Q5_1", 32, 24),
    8: Blocks("Q8_0", 32, 34),
    9: Blocks("Q8_1", 32, 40),
    10: Blocks("Q2_K", 256, 84),
    11: Blocks("Q3_K", 256, 110),
    12: Blocks("Q4_K", 256, 144),
    13: Blocks("Q5_K", 256, 176),
    14: Blocks("Q6_K", 256, 210),
    15: Blocks("Q8_K", 256, 292),
    16: Blocks("IQ2_XXS", 256, 66),
    17: Blocks("IQ2_XS", 256, 74),
    18: Blocks("IQ3_XXS", 256, 98),
    19: Blocks("IQ1_S", 256, 50),
    20: Blocks("IQ4_NL", 32, 18),
    21: Blocks("IQ3_S", 256, 110),
    22: Blocks("IQ2_S", 256, 82),
    23: Blocks("IQ4_XS", 256, 136),
    24: Blocks("I8", 1, 1),
    25: Blocks("I16", 1, 2),
    26: Blocks("I32", 1, 4),
    27: Blocks("I64", 1, 8),
    28: Blocks("F64", 1, 8),
    29: Blocks("IQ1_M", 256, 56),
    30: Blocks("BF16", 1, 2),
    34: Blocks("TQ1_0", 256, 54),
    35: Blocks("TQ2_0", 256, 66),
    39: Blocks("MXFP4", 32, 17),
    40: Blocks("NVFP4", 64, 36),
    41: Blocks("Q1_0", 128, 18),
}
BLOCKS = {blocks.name: blocks for blocks in TENSORS.values()}

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # as struct says
STRING, ARRAY = 8, 9

FILES = {  # general.file_type: the format of most weights, by its common name; plain floats are not listed
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    21: "Q2_K_S",
    25: "IQ4_NL",
    30: "IQ4_XS",
}
