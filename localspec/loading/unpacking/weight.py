"""One quantised weight [outputs, inputs], some float32 rows at a time: (code - zero) * scale.

GPTQ's first format stores a zero one too low. Its tools take the ones off whole words and put them on again, so that a
zero of 0 borrows from its neighbour; with three bits, off every number alone (GPTQModel, utils/model.py). Codes that
compressed-tensors packs are 2^(bits - 1) too high, and so are zeros that it packs.
Scales, zeros and the order of the inputs are read once and kept; codes are read for the rows that are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from localspec.core.errors import REPEAT, CheckpointError
from localspec.loading.unpacking.fields import OF_A_WORD, SLAB_ELEMENTS, float8, interleaved, unpacked
from localspec.models.prequantised.weights import StoredWeight, ceil_div

if TYPE_CHECKING:
    from localspec.loading.sources import Files

ONES = {2: 0x55555555, 4: 0x11111111, 8: 0x01010101}  # in every number of a word


class Weight:
    """Reads and checks all but the codes when it is made."""

    def __init__(self, files: Files, stored: StoredWeight) -> None:
        self.files, self.stored = files, stored
        self.check_size()
        self.scales = self.grid(files.read(stored.scales)).float()
        if not self.scales.isfinite().all():
            raise self.fault("a scale is infinite or not a number")
        self.zeros = self.read_zeros()
        self.order = self.read_order()

    def check_size(self) -> None:
        if self.stored.size and tuple(self.files.read(self.stored.size).tolist()) != self.stored.shape:
            raise self.fault(f"its shape is not {self.stored.shape[0]} × {self.stored.shape[1]}")

    def grid(self, found: Tensor) -> Tensor:
        """A number for each grain: [outputs, inputs]."""
        return found.t().contiguous() if self.stored.layout in ("gptq", "awq") else found.view(-1, self.stored.groups)

    def read_zeros(self) -> Tensor | int | None:
        """Zeros, counted as the codes are."""
        name, bits, layout = self.stored.zeros, self.stored.scheme.bits, self.stored.layout
        middle = 1 << (bits - 1) if layout == "packed" else 0
        if name is None:
            return middle or None
        found = self.files.read(name)
        if layout == "gptq":
            return self.grid(self.gptq_zeros(found, bits))
        if layout == "awq":
            return interleaved(found)
        if found.dtype == torch.int32:
            return unpacked(found.t(), bits)[:, : self.stored.shape[0]].t().contiguous()
        return self.grid(found).short() + middle

    def gptq_zeros(self, words: Tensor, bits: int) -> Tensor:
        if not self.stored.scheme.less_one:
            return unpacked(words, bits)
        return unpacked(words + ONES[bits], bits) if bits in ONES else (unpacked(words, bits) + 1) & 7

    def read_order(self) -> Tensor | None:
        """The group of each input; None where all groups are as large, and a group's inputs neighbours."""
        inputs, size = self.stored.shape[1], self.stored.grain[1]
        plain = torch.arange(inputs) // size
        found = plain if self.stored.order is None else self.files.read(self.stored.order).long()
        if self.stored.layout != "gptq" and bool((found == -1).all()):
            found = plain  # compressed-tensors means that there is none
        if found.min() < 0 or found.max() >= self.stored.groups:
            raise self.fault("an input is in a group that is not there")
        return None if inputs % size == 0 and torch.equal(found, plain) else found

    def rows(self, first: int, last: int) -> Tensor:
        step = max(SLAB_ELEMENTS // self.stored.shape[1], 1)
        if last - first <= step:
            return self.slab(first, last)
        found = torch.empty(last - first, self.stored.shape[1])
        for low in range(first, last, step):
            high = min(low + step, last)
            found[low - first : high - first] = self.slab(low, high)
        return found

    def slab(self, first: int, last: int) -> Tensor:
        rows = self.codes(first, last)
        if isinstance(self.zeros, int):
            rows.sub_(self.zeros)
        elif self.zeros is not None:
            self.apply(rows, Tensor.sub_, self.of_rows(self.zeros, first, last))
        self.apply(rows, Tensor.mul_, self.of_rows(self.scales, first, last))
        return rows

    def of_rows(self, grid: Tensor, first: int, last: int) -> Tensor:
        outputs = self.stored.grain[0]
        return grid[first:last] if outputs == 1 else grid[torch.arange(first, last) // outputs]

    def apply(self, rows: Tensor, how: Callable[[Tensor, Tensor], Tensor], numbers: Tensor) -> None:
        """Applies scales and zeros in place; `numbers` [rows, groups]."""
        if self.order is None:
            how(rows.view(*numbers.shape, -1), numbers[..., None])
        else:
            how(rows, numbers.index_select(1, self.order))

    def codes(self, first: int, last: int) -> Tensor:
        """Codes as float32 numbers."""
        name, layout, bits = self.stored.codes, self.stored.layout, self.stored.scheme.bits
        if layout == "gptq":
            return unpacked(self.files.columns(name, first, last).t(), bits).float()
        if layout == "awq":
            word = first // OF_A_WORD
            words = self.files.columns(name, word, ceil_div(last, OF_A_WORD))
            return interleaved(words)[first - word * OF_A_WORD :][: last - first].float()
        found = self.files.rows(name, first, last)
        if layout == "packed":
            return unpacked(found, bits)[:, : self.stored.shape[1]].float()
        return float8(found) if self.stored.scheme.is_float else found.float()

    def fault(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"The checkpoint's '{self.stored.module[:120]}' is not quantised as its config says: {what}.", hint=REPEAT
        )
