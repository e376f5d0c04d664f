"""Weight formats behind one call: `linear(rows) -> rows`. Here: dense, in float64, float32 or bfloat16.

Knows nothing about where a weight came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}


class Linear(Protocol):
    """rows [n, inputs] to rows [n, outputs]."""

    @property
    def num_bytes(self) -> int: ...

    def __call__(self, rows: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Dense:
    """weight: [outputs, inputs]; bias: [outputs] or None; both in the dtype of the rows."""

    weight: Tensor
    bias: Tensor | None = None

    @property
    def num_bytes(self) -> int:
        bias = 0 if self.bias is None else self.bias.nbytes
        return self.weight.nbytes + bias

    def __call__(self, rows: Tensor) -> Tensor:
        return functional.linear(rows, self.weight, self.bias)
