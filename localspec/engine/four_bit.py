"""nf4 and fp4 weights in bitsandbytes' form, codes and a state: quantise, join, dequantise, lay out for a CPU.

The only module that imports bitsandbytes. Knows nothing about linears.
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
from localspec.models.prequantised.stored_format import FourBitType

BLOCK = 64  # weights that share a scale, and what slabs of rows must be whole multiples of
OUTER_BLOCK = 256  # scales that share one: bitsandbytes' fused kernels know no other
SLAB = 1 << 20  # weights dequantised at once where no kernel is fused: glibc does not reuse the memory of 16 MB slabs
BAND = 32  # outputs that the CPU's fused kernel reads together
INSTALL = "Run: pip install 'bitsandbytes>=0.50'"


def quantise(
    slabs: Iterable[Tensor], shape: tuple[int, int], quant_type: FourBitType, device: str
) -> tuple[Tensor, Any]:
    """Codes and state of a weight, bit for bit as bitsandbytes makes them from the whole weight."""
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
    """bitsandbytes' state of a weight. `offset`, `outer`: for scales that are quantised to eight bits themselves."""
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
    """The scale of each block, in float32."""
    scales: Tensor = state.absmax
    if state.nested:
        scales = library().functional.dequantize_blockwise(state.absmax, state.state2) + state.offset
    return scales.float()


def with_scales(state: Any, scales: Tensor, shape: tuple[int, int], dtype: torch.dtype = torch.float32) -> Any:
    """The state of a weight of this shape with flat scales, to be dequantised to this dtype."""
    return library().functional.QuantState(
        absmax=scales,
        shape=torch.Size(shape),
        code=state.code,
        blocksize=state.blocksize,
        quant_type=state.quant_type,
        dtype=dtype,
    )


def can_join(parts: list[tuple[Tensor, Any]]) -> bool:
    """True if no block would cross from one weight into the next."""
    sizes = {state.blocksize for _, state in parts}
    return len(parts) == 1 or (len(sizes) == 1 and all(state.shape.numel() % min(sizes) == 0 for _, state in parts))


def joined(parts: list[tuple[Tensor, Any]]) -> tuple[Tensor, Any]:
    """Joins weights over the same inputs; their nested scales differ, so the result has flat ones."""
    if len(parts) == 1:
        return parts[0]
    states = [state for _, state in parts]
    shape = sum(state.shape[0] for state in states), states[0].shape[1]
    codes = torch.cat([codes for codes, _ in parts])
    return codes, with_scales(states[0], torch.cat([flat_scales(state) for state in states]), shape)


def dequantised(codes: Tensor, state: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    """Dequantises codes in the order of files.

    They are taken as a single row: on a CPU bitsandbytes uses wrong scales where rows are not whole blocks.
    """
    flat = with_scales(state, flat_scales(state), (1, state.shape.numel()), dtype)
    found: Tensor = library().functional.dequantize_4bit(codes, flat)
    return found.view(state.shape)


def unpacked(codes: Tensor, state: Any, dtype: torch.dtype) -> Iterator[Tensor]:
    """Dequantises some rows at a time: a whole head would be the largest tensor of all, which no plan counts. Takes the
    codes in either order, of files or of the CPU's fused kernel."""
    (outputs, inputs), block = state.shape, state.blocksize
    reordered = is_for_the_cpu(state)
    scales = state.absmax.t().float().reshape(-1) if reordered else flat_scales(state)
    step = max(SLAB // inputs // block, 1) * block
    for first in range(0, outputs, step):
        last = min(first + step, outputs)
        at, end = first * inputs, last * inputs
        part = with_scales(state, scales[at // block : -(-end // block)], (last - first, inputs))
        found = as_in_files(codes[first:last]) if reordered else codes[at // 2 : -(-end // 2)]
        yield dequantised(found, part, dtype)


def suits_the_cpu(shape: Sequence[int], block: int) -> bool:
    """True if bitsandbytes has a fused kernel on this CPU for this shape and block size."""
    outputs, inputs = shape
    return outputs % BAND == 0 and inputs % block == 0 and bool(library().functional.has_avx512bf16())


def for_the_cpu(codes: Tensor, state: Any) -> tuple[Tensor, Any]:
    """Reorders the codes in place for the CPU's fused kernel, some rows at a time."""
    kernels = library().functional
    outputs, inputs = state.shape
    table, scales = codes.view(outputs, inputs // 2), flat_scales(state).view(outputs, -1)
    columns = torch.empty(scales.shape[1], outputs, dtype=torch.bfloat16)
    step = max((1 << 20) // inputs // BAND, 1) * BAND
    for first in range(0, outputs, step):
        last = min(first + step, outputs)
        part = with_scales(state, scales[first:last].reshape(-1), (last - first, inputs))
        table[first:last], part = kernels._convert_weight_packed_for_cpu(table[first:last], part)
        columns[:, first:last] = part.absmax
    whole = with_scales(state, columns, (outputs, inputs))
    whole.packing_format_for_cpu = True
    return table, whole


def is_for_the_cpu(state: Any) -> bool:
    return bool(getattr(state, "packing_format_for_cpu", False))


def as_in_files(codes: Tensor) -> Tensor:
    """Undoes `for_the_cpu`: 32 outputs and two inputs are 32 bytes, with the codes of the first 16 outputs in the low
    nibbles, input by input, and those of the others in the high ones."""
    pairs = codes.view(-1, codes.shape[1], BAND // 2, 2)
    even, odd = pairs.unbind(-1)
    both = torch.cat([(even << 4) | (odd & 0x0F), (even & 0xF0) | (odd >> 4)], dim=-1)
    return both.transpose(1, 2).reshape(-1, 1)


@cache
def library() -> Any:
    """Imports bitsandbytes; EngineError if it is missing, too old, or has no library for this machine."""
    logging.getLogger("bitsandbytes").setLevel(logging.CRITICAL)  # its complaints become one sentence of ours
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
    """Makes imports of the package `kernels` fail: it would download compiled code and run it."""
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
