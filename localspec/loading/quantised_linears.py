"""Converts linears that bitsandbytes has quantised to tensors of the weight cache, and back.

They are kept as they lie in memory on this device, so that the next start computes nothing. Knows nothing about where a
copy is, and not which linears a model has but for the Llama family.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from localspec.engine.arch import Arch
from localspec.engine.decoder import Layer
from localspec.engine.four_bit import library
from localspec.engine.linear import EightBit, FourBit, Linear, Quantiser

HEAD = "lm_head.weight"
ALIGNED = 64  # bytes; what the CPU's fused product reads begins on such a border
Parts = dict[str, Tensor]
Shape = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LinearTensor:
    """One tensor of one linear, flat: bytes, or else float32."""

    name: str
    num_bytes: int
    is_bytes: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.num_bytes if self.is_bytes else self.num_bytes // 4,)


@dataclass(frozen=True)
class QuantisedContents:
    """Linears [outputs, inputs] by the name of their (first) weight, and what makes them. `made_by`: bitsandbytes'
    version."""

    maker: Quantiser
    linears: tuple[tuple[str, Shape], ...]
    made_by: str

    @classmethod
    def of(cls, maker: Quantiser, linears: Iterable[tuple[str, Shape]]) -> QuantisedContents:
        return cls(maker, tuple(linears), library().__version__)

    @property
    def made(self) -> str:
        return "quantised"

    @property
    def weight_format(self) -> str:
        return f"{self.maker.name}-{self.maker.device}"

    @property
    def layers(self) -> list[list[LinearTensor]]:
        """Returns no layers: none is read from this cache again."""
        return []

    @property
    def num_bytes(self) -> int:
        return sum(part.num_bytes for part in self.pieces.values())

    @cached_property
    def pieces(self) -> dict[str, LinearTensor]:
        """Whole borders first, then floats: each tensor begins where its type may."""
        found = [
            LinearTensor(f"{linear}.{part}", like.nbytes, like.dtype != torch.float32)
            for linear, shape in self.linears
            for part, like in self.maker.empty_parts(shape).items()
        ]
        found.sort(key=lambda part: (part.num_bytes % ALIGNED > 0, part.is_bytes))
        return {part.name: part for part in found}

    def split(self, made: Mapping[str, Linear]) -> Parts:
        """The parts of these linears, biases apart: those are read from the model every time."""
        return {f"{name}.{part}": tensor for name, _ in self.linears for part, tensor in parts_of(made[name])}

    def join(self, found: Parts) -> dict[str, Parts]:
        """The parts of each linear, in their types and shapes; empty where nothing was cached."""
        shapes = {name: self.maker.empty_parts(shape) for name, shape in self.linears} if found else {}
        return {
            name: {part: found[f"{name}.{part}"].view(like.dtype).view(like.shape) for part, like in parts.items()}
            for name, parts in shapes.items()
        }


def parts_of(linear: Linear) -> Iterator[tuple[str, Tensor]]:
    assert isinstance(linear, FourBit | EightBit)
    yield from linear.parts().items()


def linears(index: int, layer: Layer) -> dict[str, Linear]:
    """A layer's linears by the names of their cache entries."""
    return dict(zip(names(index), (layer.qkv, layer.output, layer.gate_up, layer.down), strict=True))


def names(index: int) -> tuple[str, ...]:
    """Names of the first weight in each of a layer's linears, as the loader fuses them."""
    parts = ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")
    return tuple(f"model.layers.{index}.{part}.weight" for part in parts)


def llama_linears(arch: Arch, *, keep_head: bool) -> Iterator[tuple[str, Shape]]:
    """A model's linears with their shapes."""
    q, kv, hidden = arch.num_heads * arch.head_dim, arch.num_kv_heads * arch.head_dim, arch.hidden_size
    wide = arch.intermediate_size
    shapes = [(q + 2 * kv, hidden), (hidden, q), (2 * wide, hidden), (hidden, wide)]
    for index in range(arch.num_layers):
        yield from zip(names(index), shapes, strict=True)
    if not keep_head:
        yield HEAD, (arch.vocab_size, hidden)
