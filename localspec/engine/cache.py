"""Static KV cache: written by index, rolled back by a counter. Knows nothing about what the rows mean.

Positions past `length` hold what an earlier draft wrote, always finite: under a mask 0 x NaN would be NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

from localspec.engine.arch import Arch


class Cache:
    """Every layer's keys, then values: [layers, context, 2 * kv_heads, head_dim]; `length` positions are committed, and
    all from `written` on are zero, but for what a graph wrote."""

    def __init__(self, arch: Arch, context: int, *, dtype: torch.dtype, device: str = "cpu") -> None:
        shape = (arch.num_layers, context, 2 * arch.num_kv_heads, arch.head_dim)
        self.store = torch.zeros(shape, dtype=dtype, device=device)
        self.layers = self.store.unbind(0)
        self.context = context
        self.length = self.written = 0

    @property
    def dtype(self) -> torch.dtype:
        return self.store.dtype

    @property
    def num_bytes(self) -> int:
        return self.store.nbytes

    def write(self, layer: int, positions: slice | Tensor, keys_values: Tensor) -> None:
        """keys_values: [rows, 2 * kv_heads, head_dim], for as many positions, all different."""
        if isinstance(positions, Tensor):
            self.layers[layer].index_copy_(0, positions, keys_values.to(self.dtype))
        else:
            self.layers[layer].narrow(0, positions.start, keys_values.shape[0]).copy_(keys_values)
            self.written = max(self.written, positions.start + keys_values.shape[0])

    def read(self, layer: int, end: int) -> tuple[Tensor, Tensor]:
        """Keys and values of positions 0..end - 1, each [1, kv_heads, end, head_dim]; views, nothing is copied."""
        keys, values = self.layers[layer].narrow(0, 0, end).transpose(0, 1).unsqueeze(0).chunk(2, dim=1)
        return keys, values

    @torch.inference_mode()
    def take(self, other: Cache, start: int, end: int) -> None:
        """Copies positions start..end - 1 of a cache that is equal before them, and then holds `end` positions."""
        self.store[:, start:end].copy_(other.store[:, start:end])
        self.length, self.written = end, max(self.written, end)

    def clear(self, end: int) -> None:
        """Zeroes what was written after the first `end` positions, which are about to be written."""
        if self.written > end:
            self.store[:, end : self.written].zero_()
        self.written = end

    def crop(self, length: int) -> None:
        """Rolls back to `length`: a counter, so it costs nothing and never passes what was written."""
        self.length = min(self.length, length)


def kv_dtype(arch: Arch, context: int, weights: torch.dtype) -> torch.dtype:
    """The cache's dtype: float32, or bfloat16 for a large one; float64, used in proofs, stays."""
    if weights == torch.float64:
        return weights
    return torch.float32 if arch.kv_element_bytes(context) == 4 else torch.bfloat16
