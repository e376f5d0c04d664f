"""Weight formats behind one call, `linear(rows) -> rows`: floats in torch; nf4, fp4 and LLM.int8 in bitsandbytes.

A LinearMaker makes Linears from rows of weights, some at a time. Knows nothing about where a weight came from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Protocol  # Any: bitsandbytes, which is imported when it is needed

import torch
from torch import Tensor
from torch.nn import functional

from localspec.core.weight_formats import INT8_THRESHOLD, WeightFormat
from localspec.engine.four_bit import (
    BLOCK,
    OUTER_BLOCK,
    dequantised,
    flat_scales,
    for_the_cpu,
    four_bit_state,
    is_for_the_cpu,
    library,
    quantise,
    suits_the_cpu,
    unpacked,
    with_scales,
)
from localspec.models.prequantised.stored_format import FOUR_BIT, FourBitType

FUSED_ROWS = (
    64  # beyond them a CPU is faster with floats: its fused product takes as long for the 500th row as the first
)


class Linear(Protocol):
    """rows [n, inputs] to rows [n, outputs], in the rows' dtype."""

    @property
    def num_bytes(self) -> int: ...

    def __call__(self, rows: Tensor) -> Tensor: ...


class LinearMaker(Protocol):
    """Makes linears in a weight format on a device. `stream`: the dtype of the rows between linears; `table`: of the
    embedding."""

    @property
    def device(self) -> str: ...

    @property
    def stream(self) -> torch.dtype: ...

    @property
    def table(self) -> torch.dtype: ...

    def linear(self, slabs: Iterable[Tensor], shape: tuple[int, int], bias: Tensor | None) -> Linear:
        """A weight [outputs, inputs] from its rows in order; all slabs but the last are whole multiples of BLOCK."""
        ...


@dataclass(frozen=True, slots=True)
class Dense:
    """weight: [outputs, inputs]; bias: [outputs] or None. Computed in the weight's dtype."""

    weight: Tensor
    bias: Tensor | None = None

    @property
    def num_bytes(self) -> int:
        return self.weight.nbytes + held(self.bias)

    def __call__(self, rows: Tensor) -> Tensor:
        return functional.linear(rows.to(self.weight.dtype), self.weight, self.bias).to(rows.dtype)

    def cut(self, outputs: int) -> Dense | None:
        """The first outputs alone, in the same memory; None where they cannot be cut off."""
        return Dense(self.weight[:outputs]) if self.bias is None else None

    def rows(self, outputs: Tensor) -> Tensor:
        """The weights [n, inputs] of some outputs [n], in floats."""
        return self.weight[outputs]


@dataclass(frozen=True, slots=True)
class FourBit:
    """Indices into a table of sixteen numbers, two a byte, and a scale per block (arXiv 2305.14314).

    `state` is bitsandbytes' QuantState: scales, themselves in eight bits or not, and how the codes lie.
    """

    codes: Tensor
    state: Any
    bias: Tensor | None
    compute: torch.dtype

    @property
    def num_bytes(self) -> int:
        outer = self.state.state2.absmax if self.state.nested else None
        return held(self.codes) + held(self.state.absmax) + held(outer) + held(self.bias)

    def parts(self) -> dict[str, Tensor]:
        """The tensors to keep, named as in `FourBitLinears.empty_parts`."""
        found = {"codes": self.codes, "scales": self.state.absmax}
        return found | {"outer": self.state.state2.absmax, "offset": self.state.offset} if self.state.nested else found

    def made_of(self, parts: Mapping[str, Tensor], bias: Tensor | None) -> FourBit:
        """Other parts and another bias, which lie as this one's do; the tables of numbers are shared."""
        state = copy(self.state)
        state.absmax = parts["scales"]
        if state.nested:
            state.offset, state.state2 = parts["offset"], copy(state.state2)
            state.state2.absmax = parts["outer"]
        return replace(self, codes=parts["codes"], state=state, bias=bias)

    def __call__(self, rows: Tensor) -> Tensor:
        narrow = rows.to(self.compute)
        found: Tensor
        if self.is_fused and (rows.shape[0] <= FUSED_ROWS or not is_for_the_cpu(self.state)):
            found = library().matmul_4bit(narrow, self.codes, self.state, bias=self.bias)
        else:
            found = self.product(narrow)
        return found.to(rows.dtype)

    def cut(self, outputs: int) -> FourBit | None:
        """None where the codes lie as the CPU's fused kernel wants them, or blocks cross rows."""
        inputs, block = self.state.shape[1], self.state.blocksize
        if self.bias is not None or is_for_the_cpu(self.state) or inputs % block:
            return None
        state = copy(self.state)
        state.shape, state.absmax = torch.Size((outputs, inputs)), state.absmax[: outputs * inputs // block]
        return replace(self, codes=self.codes[: outputs * inputs // 2], state=state)

    def rows(self, outputs: Tensor) -> Tensor:
        inputs, outputs = self.state.shape[1], outputs.to(self.codes.device)
        codes = self.codes.view(-1, inputs // 2)[outputs].view(-1, 1)
        scales = flat_scales(self.state).view(self.state.shape[0], -1)[outputs]
        some = with_scales(self.state, scales.view(-1), (len(outputs), inputs))
        return dequantised(codes, some, self.compute)

    @property
    def is_fused(self) -> bool:
        """Whether bitsandbytes multiplies with the codes: on a CPU always, on a GPU up to as many rows as are best.
        Else it makes floats of the whole weight, and on a CPU takes the scales of other blocks where rows are not whole
        ones."""
        return self.compute == torch.bfloat16 and self.state.shape[1] % self.state.blocksize == 0

    def product(self, rows: Tensor) -> Tensor:
        """Multiplies rows [n, inputs] by the weights → [n, outputs], unpacking some outputs' weights at a time."""
        found, at = rows.new_empty(rows.shape[0], self.state.shape[0]), 0
        for weights in unpacked(self.codes, self.state, self.compute):
            last = at + weights.shape[0]
            torch.mm(rows, weights.t(), out=found[:, at:last])
            at = last
        return found if self.bias is None else found.add_(self.bias)


@dataclass(frozen=True, slots=True)
class EightBit:
    """Weights in eight bits with a scale per output, rows with a scale per row (LLM.int8, arXiv 2208.07339).

    Where any row of a forward has an input beyond `threshold`, that column is multiplied in 16 bits for all of them,
    so one row's result depends on the others. With 0 it does not, and outliers cost precision.
    """

    codes: Tensor  # int8 [outputs, inputs]
    scales: Tensor  # float32 [outputs]
    bias: Tensor | None
    threshold: float

    @property
    def num_bytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes + held(self.bias)

    def parts(self) -> dict[str, Tensor]:
        """The tensors to keep, named as in `EightBitLinears.empty_parts`."""
        return {"codes": self.codes, "scales": self.scales}

    def __call__(self, rows: Tensor) -> Tensor:
        kernels = torch.ops.bitsandbytes
        codes, scales, outliers = kernels.int8_vectorwise_quant(rows.to(torch.float16), self.threshold)
        found: Tensor
        if self.threshold:
            found, _ = kernels.int8_mixed_scaled_mm(rows, codes, self.codes, scales, self.scales, outliers, self.bias)
        else:
            found = kernels.int8_scaled_mm(codes, self.codes, scales, self.scales, bias=self.bias, dtype=rows.dtype)
        return found

    def cut(self, outputs: int) -> EightBit | None:
        if self.bias is not None:
            return None
        return replace(self, codes=self.codes[:outputs], scales=self.scales[:outputs])

    def rows(self, outputs: Tensor) -> Tensor:
        outputs = outputs.to(self.codes.device)
        return (self.codes[outputs] * (self.scales[outputs, None] / 127)).to(torch.bfloat16)


Cuttable = Dense | FourBit | EightBit
"""Linears whose first outputs can be used alone."""


@dataclass(frozen=True, slots=True)
class FloatLinears:
    """Weights as they are, in one dtype."""

    stream: torch.dtype
    device: str = "cpu"

    @property
    def table(self) -> torch.dtype:
        return self.stream

    def linear(self, slabs: Iterable[Tensor], shape: tuple[int, int], bias: Tensor | None) -> Dense:
        weight, at = self.empty(*shape), 0
        for slab in slabs:
            weight[at : at + slab.shape[0]] = slab.to(self.device, self.stream)
            at += slab.shape[0]
        return Dense(weight, None if bias is None else bias.to(self.device, self.stream))

    def empty(self, outputs: int, inputs: int) -> Tensor:
        """An empty weight [outputs, inputs]. On a CPU a single row goes a third faster through float32 laid out by
        inputs, and half as fast through bfloat16 (docs/measurements-archive.md)."""
        if self.stream == torch.bfloat16:
            return torch.empty(outputs, inputs, dtype=self.stream, device=self.device)
        return torch.empty(inputs, outputs, dtype=self.stream, device=self.device).t()


@dataclass(frozen=True, slots=True)
class FourBitLinears:
    """nf4 or fp4 with double quantisation: 4.13 bits a weight, and 4.25 as the CPU's fused product reads them.

    Computed in bfloat16 where a product is fused; on other CPUs the weights become float32 for every forward.
    """

    quant_type: FourBitType
    stream: torch.dtype
    device: str = "cpu"
    table: torch.dtype = torch.bfloat16

    @property
    def name(self) -> str:
        return self.quant_type

    def linear(self, slabs: Iterable[Tensor], shape: tuple[int, int], bias: Tensor | None) -> FourBit:
        return self.laid_out(*quantise(slabs, shape, self.quant_type, self.device), bias)

    def empty_parts(self, shape: tuple[int, int]) -> dict[str, Tensor]:
        """The parts of a linear of this shape, on the meta device."""
        outputs, inputs = shape
        with torch.device("meta"):
            if self.device == "cpu" and suits_the_cpu(shape, BLOCK):
                scales = torch.empty(inputs // BLOCK, outputs, dtype=torch.bfloat16)
                return {"codes": torch.empty(outputs, inputs // 2, dtype=torch.uint8), "scales": scales}
            blocks = math.ceil(outputs * inputs / BLOCK)
            return {
                "codes": torch.empty((outputs * inputs + 1) // 2, 1, dtype=torch.uint8),
                "scales": torch.empty(blocks, dtype=torch.uint8),
                "outer": torch.empty(math.ceil(blocks / OUTER_BLOCK)),
                "offset": torch.empty(()),
            }

    def restored(self, parts: Mapping[str, Tensor], shape: tuple[int, int], bias: Tensor | None) -> FourBit:
        """The linear that was made of these parts; on a CPU that has a fused product they stay where they are."""
        if "offset" not in parts:
            state = four_bit_state(self.quant_type, shape, parts["scales"])
            state.packing_format_for_cpu = True
            return FourBit(parts["codes"], state, None if bias is None else bias.to(torch.bfloat16), torch.bfloat16)
        codes, scales, outer, offset = (
            parts[name].to(self.device, copy=True) for name in ("codes", "scales", "outer", "offset")
        )
        kernels = library().functional
        double = kernels.QuantState(
            absmax=outer,
            code=kernels.create_dynamic_map().to(self.device),
            blocksize=OUTER_BLOCK,
            dtype=torch.float32,
        )
        return self.laid_out(codes, four_bit_state(self.quant_type, shape, scales, offset, double), bias)

    def laid_out(self, codes: Tensor, state: Any, bias: Tensor | None) -> FourBit:
        """Builds a linear from codes and scales as bitsandbytes keeps them in files; `codes` may be written into."""
        compute = torch.bfloat16
        if self.device == "cpu":
            if suits_the_cpu(state.shape, state.blocksize):
                codes, state = for_the_cpu(codes, state)
            else:
                compute = torch.float32
        return FourBit(codes, state, None if bias is None else bias.to(self.device, compute), compute)


@dataclass(frozen=True, slots=True)
class EightBitLinears:
    """LLM.int8. `threshold` 0: no column in 16 bits."""

    threshold: float
    stream: torch.dtype
    device: str = "cuda"
    table: torch.dtype = torch.bfloat16

    @property
    def name(self) -> str:
        return "int8"

    def linear(self, slabs: Iterable[Tensor], shape: tuple[int, int], bias: Tensor | None) -> EightBit:
        quantise_rows = library().functional.int8_vectorwise_quant
        codes = torch.empty(shape, dtype=torch.int8, device=self.device)
        scales, at = torch.empty(shape[0], device=self.device), 0
        for slab in slabs:
            last = at + slab.shape[0]
            codes[at:last], scales[at:last], _ = quantise_rows(slab.to(self.device, torch.float16))
            at = last
        return self.restored({"codes": codes, "scales": scales}, shape, bias)

    def empty_parts(self, shape: tuple[int, int]) -> dict[str, Tensor]:
        """The parts of a linear of this shape, on the meta device."""
        with torch.device("meta"):
            return {"codes": torch.empty(shape, dtype=torch.int8), "scales": torch.empty(shape[0])}

    def restored(self, parts: Mapping[str, Tensor], shape: tuple[int, int], bias: Tensor | None) -> EightBit:  # noqa: ARG002 - the codes have it
        """The linear that is made of these parts."""
        codes, scales = (parts[name].to(self.device) for name in ("codes", "scales"))
        return EightBit(codes, scales, None if bias is None else bias.to(self.device, self.stream), self.threshold)


Quantiser = FourBitLinears | EightBitLinears


def dtype_of(row: WeightFormat) -> torch.dtype:
    """The type of a float format's weights; 16 bits where a format quantises them."""
    found: torch.dtype = getattr(torch, row.codec) if row.is_float else torch.bfloat16
    return found


def linear_maker(row: WeightFormat, *, threshold: float = INT8_THRESHOLD) -> LinearMaker:
    """Makes linears of a format that torch or bitsandbytes computes. On a CPU float32 between linears is as fast as 16
    bits."""
    if row.is_float:
        return FloatLinears(dtype_of(row), row.device)
    return quantiser(row, threshold=threshold)


def quantiser(row: WeightFormat, *, threshold: float = INT8_THRESHOLD) -> Quantiser:
    """Makes linears of a format that bitsandbytes computes."""
    stream = torch.float32 if row.device == "cpu" else torch.bfloat16
    for name in FOUR_BIT:
        if row.codec == name:
            return FourBitLinears(name, stream, row.device)
    return EightBitLinears(threshold, stream, row.device)


def held(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.nbytes
