"""Deepens a sequence that llama.cpp has saved, without computing: a cache for timings, whose numbers mean nothing."""

from __future__ import annotations

import struct

import torch

HEAD = struct.Struct("<IiII")  # magic, sequence, streams, cells
PLACE = struct.Struct("<iIi")  # position, sequences, the one sequence
WORDS = struct.Struct("<II")  # transposed values, layers
BLOCK_HEAD = 12  # bytes: type and size of a row
HALF = 2  # bytes


def deepened(state: bytes, depth: int) -> bytearray | None:
    """A state of one cell as one of `depth` cells with random float16; None where it is not laid out as we know it."""
    fixed = HEAD.size + PLACE.size + WORDS.size
    if len(state) < fixed:
        return None
    magic, sequence, streams, cells = HEAD.unpack_from(state)
    transposed, layers = WORDS.unpack_from(state, HEAD.size + PLACE.size)
    if (streams, cells, PLACE.unpack_from(state, HEAD.size)) != (1, 1, (0, 1, 0)) or transposed > 1 or layers == 0:
        return None
    block, rest = divmod(len(state) - fixed, 2 * layers)
    row = block - BLOCK_HEAD
    if rest or row <= 0 or row % HALF:
        return None
    made = bytearray(HEAD.pack(magic, sequence, streams, depth))
    for position in range(depth):
        made += PLACE.pack(position, 1, 0)
    made += WORDS.pack(transposed, layers)
    numbers = torch.randn(depth * row // HALF, generator=torch.Generator().manual_seed(0)).half().numpy().tobytes()
    for index in range(2 * layers):
        start = fixed + index * block
        made += state[start : start + BLOCK_HEAD] + numbers
    return made
