"""The torch decoder that computes what a packed one should: its very weights, rows and cache rounded as it rounds them.

All else is float32, so that what is left between the two is the order of additions. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from localspec.blueprint import Blueprint
from localspec.engine.arch import Arch
from localspec.engine.cache import Cache
from localspec.engine.cpu.formats import GROUP, SMALLEST
from localspec.engine.cpu.pack import Packed, unpack
from localspec.engine.decoder import Decoder, Layer, Weights
from localspec.engine.linear import Dense

if TYPE_CHECKING:
    from localspec.engine.cpu.decoder import PackedDecoder, PackedLayer


@dataclass(frozen=True, slots=True)
class Rounded:
    """A linear that pads each of the `heads` in its rows to `wide` channels, and rounds to eight bits per group."""

    dense: Dense
    heads: int
    wide: int

    @property
    def num_bytes(self) -> int:
        return self.dense.num_bytes

    def __call__(self, rows: Tensor) -> Tensor:
        spread = rows.view(rows.shape[0], self.heads, -1)
        spread = pad(spread, (0, self.wide - spread.shape[-1])).flatten(1)
        return self.dense(round_rows(pad(spread, (0, self.dense.weight.shape[1] - spread.shape[1]))))


class RoundedCache(Cache):
    """Keys and values in float32, as a shorter type holds them."""

    def __init__(self, arch: Arch, context: int, *, rounded: torch.dtype) -> None:
        super().__init__(arch, context, dtype=torch.float32)
        self.rounded = rounded

    def write(self, layer: int, position: int, keys_values: Tensor) -> None:
        super().write(layer, position, keys_values.to(self.rounded).float())


def round_rows(rows: Tensor) -> Tensor:
    groups = rows.view(rows.shape[0], -1, GROUP)
    top = groups.abs().amax(-1, keepdim=True)
    codes = (groups * torch.where(top > SMALLEST, 127 / top, 0.0)).round()
    return (codes * (top / 127)).flatten(1)


def reference(blueprint: Blueprint, decoder: PackedDecoder) -> Decoder:
    """The torch decoder on what the packed weights stand for."""
    arch, weights, hidden = blueprint.arch, decoder.weights, blueprint.arch.hidden_size
    layers = tuple(reference_layer(blueprint, layer) for layer in weights.layers)
    table = unpack(weights.embedding.data, "int8")[: arch.vocab_size, :hidden]
    head = rounded(weights.head, lambda rows: rows[: arch.vocab_size])
    cache = RoundedCache(arch, decoder.context, rounded=decoder.cache.store.dtype)
    return Decoder(arch, Weights(table, layers, weights.norm[:hidden], head), cache)


def reference_layer(blueprint: Blueprint, layer: PackedLayer) -> Layer:
    arch, wide, hidden = blueprint.arch, blueprint.head, blueprint.arch.hidden_size

    def heads(rows: Tensor) -> Tensor:
        return rows[: blueprint.heads * wide].view(-1, wide, *rows.shape[1:])[:, : arch.head_dim].flatten(0, 1)

    def gates(rows: Tensor) -> Tensor:
        pairs = rows[: 2 * blueprint.inner].view(-1, 2, 16, *rows.shape[1:])
        return torch.cat([pairs[:, part].flatten(0, 1)[: arch.intermediate_size] for part in (0, 1)])

    def stream(rows: Tensor) -> Tensor:
        return rows[:hidden]

    return Layer(
        attention_norm=layer.attention_norm[:hidden],
        qkv=rounded(layer.qkv, heads),
        q_norm=None if layer.q_norm is None else layer.q_norm[: arch.head_dim],
        k_norm=None if layer.k_norm is None else layer.k_norm[: arch.head_dim],
        output=rounded(layer.output, stream, heads=arch.num_heads, wide=wide),
        mlp_norm=layer.mlp_norm[:hidden],
        gate_up=rounded(layer.gate_up, gates),
        down=rounded(layer.down, stream),
    )


def rounded(packed: Packed, cut: Callable[[Tensor], Tensor], *, heads: int = 1, wide: int = 0) -> Rounded:
    """`cut` takes the outputs that are not padding from rows of weights, and from the bias."""
    bias = None if packed.bias is None else cut(packed.bias)
    return Rounded(Dense(cut(unpack(packed.data, packed.kind)), bias), heads, wide or packed.inputs)
