"""Keys and values of one sequence for the compiled code: keys as vectors of 16 positions, channel by channel,
values position by position. Knows nothing about weights.
"""

from __future__ import annotations

import torch

from localspec.engine.arch import Arch
from localspec.engine.cpu import layout as at
from localspec.engine.cpu.formats import padded

VECTOR = 16  # positions: their keys lie channel by channel


class PackedCache:
    """Every layer's keys and values, [layers, 2, kv_heads, context, head] float16; `length` are committed."""

    def __init__(self, arch: Arch, context: int) -> None:
        self.context, self.length = context, 0
        self.padded = padded(context, at.CHUNK)
        shape = (arch.num_layers, 2, arch.num_kv_heads, self.padded, padded(arch.head_dim, 16))
        self.store = torch.zeros(shape, dtype=torch.float16)
        self.address = self.store.data_ptr()

    @property
    def num_bytes(self) -> int:
        return self.store.nbytes

    def take(self, other: PackedCache, start: int, end: int) -> None:
        """Copies positions start..end - 1 of a cache that is equal before them, and then holds `end` positions."""
        blocks = slice(start // VECTOR * VECTOR, padded(end, VECTOR))
        self.store[:, :, :, blocks].copy_(other.store[:, :, :, blocks])
        self.length = end

    def crop(self, length: int) -> None:
        self.length = min(self.length, length)
