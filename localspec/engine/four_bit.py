"""Weights in four bits as bitsandbytes has them: codes and a state, made, joined, taken back, and laid out for a CPU.

Also the one door through which bitsandbytes is imported. Knows nothing about linears.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any  # Any: bitsandbytes, which is imported when it is needed

import torch
from torch import Tensor

from localspec.core.errors import EngineError
from localspec.models.prequantised.stored import FourBitType

BLOCK = 64  # weights that share a scale, and what slabs of rows must be whole multiples of
OUTER_BLOCK = 256  # scales that share one: bitsandbytes' fused kernels know no other
SLAB = 1 << 20  # weights that are floats at once where no product is fused: glibc finds slabs of 16 MB no room twice
BAND = 32  # outputs that the CPU's fused kernel reads together
INSTALL = "Run: pip install 'bitsandbytes>=0.50'"


def quantise(
    slabs: Iterable[Tensor], shape: tuple[int, int], quant_type: FourBitType, device: str
) -> tuple[Tensor, Any]:
    """Codes and scales, to the bit as bitsandbytes makes them from the whole weight."""
    kernels = library().functional
    elements, at = shape[0] * shape[1], 0
    codes = torch.empty((elements + 1) // 2, 1, dtype=torch.uint8, device=device)
    scales = torch.empty(-(-elements // BLOCK), device=device)
    for slab in slabs:
        rows = slab.to(device, torch.float32).contiguous()
        some, state = kernels.quantize_4bit(rows, blocksize=BLOCK, quant_type=quant_type)
        codes[at // 2 : at // 2 + len(some)] = some
        scales[at // BLOCK : at // BLOCK + len(state.absmax)] = state.absmax
        at += rows.numel()
    offset = scales.mean()
    inner, outer = kernels.quantize_blockwise(scales - offset, blocksize=OUTER_BLOCK)
    return codes, four_bit_state(quant_type, shape, inner, offset, outer)


def four_bit_state(
    quant_type: FourBitType, shape: tuple[int, int], scales: Tensor, offset: Tensor | None = None, outer: Any = None
) -> Any:
    """bitsandbytes' of a weight that we quantised. `offset`, `outer`: of scales that are in eight bits themselves."""
    kernels = library().functional
    return kernels.QuantState(
        absmax=scales,
        shape=torch.Size(shape),
        code=kernels.get_4bit_type(quant_type, device=scales.device),
        blocksize=BLOCK,
        quant_type=quant_type,
        dtype=torch.float32,
        offset=offset,
        state2=outer,
    )


def flat_scales(state: Any) -> Tensor:
    """A scale per block, in float32."""
    scales: Tensor = state.absmax
    if state.nested:
        scales = library().functional.dequantize_blockwise(state.absmax, state.state2) + state.offset
    return scales.float()


def with_scales(state: Any, scales: Tensor, shape: tuple[int, int], dtype: torch.dtype = torch.float32) -> Any:
    """The state of a weight of this shape with flat scales, to become numbers of this dtype."""
    return library().functional.QuantState(
        absmax=scales,
        shape=torch.Size(shape),
        code=state.code,
        blocksize=state.blocksize,
        quant_type=state.quant_type,
        dtype=dtype,
    )


def can_join(parts: list[tuple[Tensor, Any]]) -> bool:
    """Whether no block would reach from one weight into the next."""
    sizes = {state.blocksize for _, state in parts}
    return len(parts) == 1 or (len(sizes) == 1 and all(state.shape.numel() % min(sizes) == 0 for _, state in parts))


def joined(parts: list[tuple[Tensor, Any]]) -> tuple[Tensor, Any]:
    """Weights over the same inputs as one. Their scales' own scales differ, so they go flat."""
    if len(parts) == 1:
        return parts[0]
    states = [state for _, state in parts]
    shape = sum(state.shape[0] for state in states), states[0].shape[1]
    codes = torch.cat([codes for codes, _ in parts])
    return codes, with_scales(states[0], torch.cat([flat_scales(state) for state in states]), shape)


def dequantised(codes: Tensor, state: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    """The weights that codes as in files stand for.

    As a single row: on a CPU bitsandbytes takes the scales of other blocks where rows are not whole blocks.
    """
    flat = with_scales(state, flat_scales(state), (1, state.shape.numel()), dtype)
    found: Tensor = library().functional.dequantize_4bit(codes, flat)
    return found.view(state.shape)


def unpacked(codes: Tensor, state: Any, dtype: torch.dtype) -> Iterator[Tensor]:
    """The same, some rows at a time: of a head they would be the largest tensor of all, which no plan counts. Also of
    codes in the order that the CPU's fused product reads."""
    (outputs, inputs), block = state.shape, state.blocksize
    turned = is_for_the_cpu(state)
    scales = state.absmax.t().float().reshape(-1) if turned else flat_scales(state)
    step = max(SLAB // inputs // block, 1) * block
    for first in range(0, outputs, step):
        last = min(first + step, outputs)
        at, end = first * inputs, last * inputs
        part = with_scales(state, scales[at // block : -(-end // block)], (last - first, inputs))
        found = as_in_files(codes[first:last]) if turned else codes[at // 2 : -(-end // 2)]
        yield dequantised(found, part, dtype)


def suits_the_cpu(shape: Sequence[int], block: int) -> bool:
    """Whether this CPU's bitsandbytes has a fused product, and for this shape in blocks of that size."""
    outputs, inputs = shape
    return outputs % BAND == 0 and inputs % block == 0 and bool(library().functional.has_avx512bf16())


def for_the_cpu(codes: Tensor, state: Any) -> tuple[Tensor, Any]:
    """The order in which the CPU's fused product reads, written over the codes, some rows at a time."""
    kernels = library().functional
    outputs, inputs = state.shape
    table, scales = codes.view(outputs, inputs // 2), flat_scales(state).view(outputs, -1)
    turned = torch.empty(scales.shape[1], outputs, dtype=torch.bfloat16)
    step = max((1 << 20) // inputs // BAND, 1) * BAND
    for first in range(0, outputs, step):
        last = min(first + step, outputs)
        part = with_scales(state, scales[first:last].reshape(-1), (last - first, inputs))
        table[first:last], part = kernels._convert_weight_packed_for_cpu(table[first:last], part)
        turned[:, first:last] = part.absmax
    whole = with_scales(state, turned, (outputs, inputs))
    whole.packing_format_for_cpu = True
    return table, whole


def is_for_the_cpu(state: Any) -> bool:
    return bool(getattr(state, "packing_format_for_cpu", False))


def as_in_files(codes: Tensor) -> Tensor:
    """Back from `for_the_cpu`: of every 32 outputs and two inputs there are 32 bytes, the codes of the first 16 outputs
    in their low halves, input by input, and those of the others in the high ones."""
    pairs = codes.view(-1, codes.shape[1], BAND // 2, 2)
    even, odd = pairs.unbind(-1)
    both = torch.cat([(even << 4) | (odd & 0x0F), (even & 0xF0) | (odd >> 4)], dim=-1)
    return both.transpose(1, 2).reshape(-1, 1)


@cache
def library() -> Any:
    """bitsandbytes, which must be there, and have its library for this machine."""
    logging.getLogger("bitsandbytes").setLevel(logging.CRITICAL)  # what it complains of, we say in one sentence
    try:
        with without_fetched_kernels():
            import bitsandbytes
    except (ImportError, OSError, RuntimeError) as fault:
        absent = isinstance(fault, ImportError) and fault.name == "bitsandbytes"
        why = "is not installed" if absent else f"cannot be imported ({str(fault).strip().splitlines()[0]})"
        raise EngineError(f"This weight format needs bitsandbytes, which {why}.", hint=INSTALL) from fault
    if not hasattr(torch.ops.bitsandbytes, "gemm_4bit"):
        raise EngineError(f"bitsandbytes {bitsandbytes.__version__} is too old for this weight format.", hint=INSTALL)
    if "Mock" in type(bitsandbytes.cextension.lib).__name__:
        raise EngineError("bitsandbytes has no library for this machine.", hint="Run: python -m bitsandbytes")
    return bitsandbytes


@contextmanager
def without_fetched_kernels() -> Iterator[None]:
    """In here an import of the package named kernels fails: it would fetch compiled code and run it."""
    known = "kernels" in sys.modules
    before = sys.modules.get("kernels")
    sys.modules["kernels"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if known:
            sys.modules["kernels"] = before  # type: ignore[assignment]
        else:
            del sys.modules["kernels"]
