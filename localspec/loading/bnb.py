"""Weights that bitsandbytes has quantised already, as transformers saves them: five or so tensors a weight.

Checks every one of them, because its kernels trust what they are given. Knows nothing about layers.
"""

from __future__ import annotations

import math
from typing import Any  # Any: bitsandbytes, and a stranger's JSON

import torch
from torch import Tensor

from localspec.core.errors import CheckpointError
from localspec.core.strict_json import parse_object
from localspec.engine.four_bit import OUTER_BLOCK, library
from localspec.loading.sources import WeightReader, refuse_not_numbers
from localspec.models.prequantised.stored_format import FOUR_BIT, FourBitType

BLOCKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
LARGEST_STATE = 4096  # bytes of JSON; bitsandbytes writes some 200


def read_stored(reader: WeightReader, name: str, shape: tuple[int, int], device: str) -> tuple[Tensor, Any] | None:
    """The codes and the state of a weight [outputs, inputs]; None where it is stored in floats."""
    for quant_type in FOUR_BIT:
        if reader.has(state_name(name, quant_type)):
            return BnbWeight(reader, name, shape, quant_type).read(device)
    return None


def state_name(name: str, quant_type: FourBitType) -> str:
    return f"{name}.quant_state.bitsandbytes__{quant_type}"


class BnbWeight:
    """One weight's tensors, read and checked."""

    def __init__(self, reader: WeightReader, name: str, shape: tuple[int, int], quant_type: FourBitType) -> None:
        self.reader, self.name, self.shape, self.quant_type = reader, name, shape, quant_type
        raw = self.tensor("quant_state.bitsandbytes__" + quant_type, torch.uint8)
        if raw.numel() > LARGEST_STATE:
            raise self.fault("its state is too long")
        self.fields = parse_object(bytes(raw.tolist()), f"The checkpoint's '{name}'")

    def read(self, device: str) -> tuple[Tensor, Any]:
        kernels, elements = library().functional, self.shape[0] * self.shape[1]
        if self.fields.get("quant_type") != self.quant_type or self.fields.get("shape") != list(self.shape):
            raise self.fault(f"it is not {self.quant_type} of {self.shape[0]} × {self.shape[1]}")
        block = self.fields.get("blocksize")
        if block not in BLOCKS:
            raise self.fault("its block size is unknown")
        table = kernels.get_4bit_type(self.quant_type, device="cpu")
        if not torch.allclose(self.tensor("quant_map", torch.float32, 16), table, atol=1e-3):
            raise self.fault("its levels are not the known ones")
        scales, offset, outer = self.scales(math.ceil(elements / block), device)
        state = kernels.QuantState(
            absmax=scales.to(device),
            shape=torch.Size(self.shape),
            code=table.to(device),
            blocksize=block,
            quant_type=self.quant_type,
            dtype=torch.float32,
            offset=offset,
            state2=outer,
        )
        return self.codes((elements + 1) // 2).to(device, copy=True), state

    def codes(self, size: int) -> Tensor:
        """Bytes, whatever type they were stored as."""
        codes = self.reader.whole(self.name).contiguous().view(torch.uint8).reshape(-1, 1)
        if len(codes) != size:
            raise self.fault(f"it has {len(codes):,} bytes, not {size:,}")
        return codes

    def scales(self, blocks: int, device: str) -> tuple[Tensor, Tensor | None, Any]:
        """A scale per block, with what undoes their own eight bits if they are in eight bits."""
        if not self.reader.has(f"{self.name}.nested_absmax"):
            return self.tensor("absmax", torch.float32, blocks), None, None
        offset = self.fields.get("nested_offset")
        if self.fields.get("nested_blocksize") != OUTER_BLOCK or not isinstance(offset, float):
            raise self.fault("its scales are quantised in an unknown way")
        shift = torch.tensor(offset)
        refuse_not_numbers(self.name, shift)  # it may be one in Python and none in float32
        outer = library().functional.QuantState(
            absmax=self.tensor("nested_absmax", torch.float32, math.ceil(blocks / OUTER_BLOCK)).to(device),
            code=self.tensor("nested_quant_map", torch.float32, 256).to(device),
            blocksize=OUTER_BLOCK,
            dtype=torch.float32,
        )
        return self.tensor("absmax", torch.uint8, blocks), shift.to(device), outer

    def tensor(self, part: str, dtype: torch.dtype, size: int | None = None) -> Tensor:
        """A part, flat, of this type and size, all numbers."""
        name = f"{self.name}.{part}"
        found = self.reader.whole(name).reshape(-1)
        if found.dtype != dtype or (size is not None and len(found) != size):
            raise self.fault(f"{part} has an unexpected type or size")
        if dtype.is_floating_point:
            refuse_not_numbers(name, found)
        return found

    def fault(self, what: str) -> CheckpointError:
        message = f"The checkpoint's '{self.name}' is not as bitsandbytes writes it: {what}."
        return CheckpointError(message, hint="Download the model again.")
