"""The torch decoder that computes what a packed one should, from the tensors that were packed.

Weights, rows and cache are rounded as the engine rounds them, in torch; all else is float32, so that what is left
between the two is the order of additions. Knows nothing of the packer, whose mistakes would otherwise be its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from localspec.engine.arch import Arch
from localspec.engine.cache import Cache
from localspec.engine.cpu.formats import GROUP, OUTPUTS, SMALLEST, PackedFormat, padded
from localspec.engine.cpu.pack import pack, pad_to, unpack
from localspec.engine.decoder import Decoder, Layer, Weights
from localspec.engine.linear import Dense, Linear
from localspec.loading.cpu_layout import LINEARS, Blueprint
from localspec.loading.sources import TensorSource
from localspec.loading.torch import assemble


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
        spread = spread_heads(rows, self.heads, self.wide)
        return self.dense(round_rows(pad(spread, (0, self.dense.weight.shape[1] - spread.shape[1]))))


class RoundedCache(Cache):
    """Keys and values in float32, as a shorter type holds them."""

    def __init__(self, arch: Arch, context: int, *, rounded: torch.dtype) -> None:
        super().__init__(arch, context, dtype=torch.float32)
        self.rounded = rounded

    def write(self, layer: int, positions: slice | Tensor, keys_values: Tensor) -> None:
        super().write(layer, positions, keys_values.to(self.rounded).float())


def round_rows(rows: Tensor) -> Tensor:
    groups = rows.view(rows.shape[0], -1, GROUP)
    top = groups.abs().amax(-1, keepdim=True)
    codes = (groups * torch.where(top > SMALLEST, 127 / top, 0.0)).round()
    return (codes * (top / 127)).flatten(1)


def spread_heads(rows: Tensor, heads: int, wide: int) -> Tensor:
    by_head = rows.reshape(rows.shape[0], heads, -1)
    return pad(by_head, (0, wide - by_head.shape[-1])).flatten(1)


def reference(blueprint: Blueprint, source: TensorSource, *, context: int) -> Decoder:
    """The torch decoder on a source's tensors, as rounded as the packed decoder of this blueprint."""
    arch, weight_format = blueprint.arch, blueprint.table_format
    exact = assemble(arch, source, dtype=torch.float32, context=context).weights
    layers = tuple(reference_layer(blueprint, index, layer) for index, layer in enumerate(exact.layers))
    table = stored(exact.embedding, weight_format)[:, : arch.hidden_size]
    cache = RoundedCache(arch, context, rounded=torch.float16)
    return Decoder(arch, Weights(table, layers, exact.norm, rounded(exact.head, weight_format)), cache)


def reference_layer(blueprint: Blueprint, index: int, layer: Layer) -> Layer:
    arch, (qk, v, output, gate_up, down) = blueprint.arch, (blueprint.format_of(index, name) for name in LINEARS)
    return replace(
        layer,
        qkv=rounded_heads(layer.qkv, qk, v, blueprint.heads_before_values * arch.head_dim),
        output=rounded(layer.output, output, heads=arch.num_heads, wide=blueprint.head),
        gate_up=rounded(layer.gate_up, gate_up),
        down=rounded(layer.down, down),
    )


def rounded_heads(linear: Linear, before: PackedFormat, after: PackedFormat, rows: int) -> Rounded:
    """The first rows in one format, the others in another."""
    assert isinstance(linear, Dense)
    weight = torch.cat((stored(linear.weight[:rows], before), stored(linear.weight[rows:], after)))
    return Rounded(Dense(weight, linear.bias), 1, linear.weight.shape[1])


def rounded(linear: Linear, weight_format: PackedFormat, *, heads: int = 1, wide: int = 0) -> Rounded:
    assert isinstance(linear, Dense)
    wide = wide or linear.weight.shape[1]
    return Rounded(Dense(stored(spread_heads(linear.weight, heads, wide), weight_format), linear.bias), heads, wide)


def stored(weight: Tensor, weight_format: PackedFormat) -> Tensor:
    """A weight [outputs, inputs] as blocks of a format hold it, its inputs padded to whole groups."""
    outputs, inputs = weight.shape
    return unpack(pack(pad_to(weight, padded(outputs, OUTPUTS), padded(inputs, GROUP)), weight_format), weight_format)[
        :outputs
    ]
