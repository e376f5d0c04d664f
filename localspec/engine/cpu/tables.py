"""Writes the tables of `layout`. Whoever owns the tensors keeps them alive."""

from __future__ import annotations

import numpy as np

from localspec.engine.cpu import layout as at
from localspec.engine.cpu.pack import Packed


def describe_linear(into: np.ndarray, start: int, linear: Packed) -> None:
    assert linear.data.is_contiguous()
    assert linear.bias is None or linear.bias.is_contiguous()
    for field, value in (
        (at.WEIGHT, linear.data.data_ptr()),
        (at.BIAS, 0 if linear.bias is None else linear.bias.data_ptr()),
        (at.BLOCKS, linear.data.shape[0]),
        (at.GROUPS, linear.data.shape[1]),
        (at.BITS, 8 if linear.weight_format == "int8" else 4),
    ):
        into[(start + field) // 8] = value


def table(num_bytes: int, *count: int) -> np.ndarray:
    return np.zeros((*count, num_bytes // 8), np.int64)
