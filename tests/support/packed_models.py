"""Tiny random models as the CPU engine holds them, and the torch decoder on exactly the weights that were packed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from localspec.engine.arch import Arch, read_arch
from localspec.engine.cache import Cache
from localspec.engine.cpu import isa, pack, program
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.formats import GROUP, OUTPUTS, SMALLEST, PackedFormat, padded
from localspec.engine.cpu.isa import Isa
from localspec.engine.cpu.model import PackedLayer, PackedModel, PackedWeights
from localspec.engine.cpu.pack import Packed
from localspec.engine.decoder import Decoder, Layer, Weights
from localspec.engine.linear import Dense, Linear
from tests.support.models import TINY, random_tensors

KINDS: tuple[PackedFormat, ...] = ("int8", "int4")
ISAS = isa.available()
Tensors = dict[str, Tensor]


def config_of(said: dict[str, Any]) -> dict[str, Any]:
    return {**TINY, **said}


def tensors_of(said: dict[str, Any], seed: int) -> Tensors:
    return random_tensors(config_of(said), seed=seed, dtype=torch.float32)


def linear(weight: Tensor, kind: PackedFormat, bias: Tensor | None) -> Packed:
    """Padded to whole blocks and groups."""
    outputs, inputs = padded(weight.shape[0], OUTPUTS), padded(weight.shape[1], GROUP)
    data = pack.pack(pack.pad_to(weight, outputs, inputs).contiguous(), kind)
    return Packed(kind, data, None if bias is None else wide(bias, outputs))


def wide(vector: Tensor, size: int) -> Tensor:
    return functional.pad(vector, (0, size - vector.shape[0]))


def by_heads(weight: Tensor, size: int) -> Tensor:
    """Each head's rows padded to whole vectors."""
    return pack.pad_rows(weight, weight.shape[0] // size, size)


def joined(tensors: Tensors, at: str, names: tuple[str, ...]) -> Tensor | None:
    parts = [tensors[f"{at}.{name}"] for name in names if f"{at}.{name}" in tensors]
    return torch.cat(parts) if parts else None


def values_begin(arch: Arch) -> int:
    """The first head, of queries', keys' and values', from where `v` has whole blocks."""
    heads = arch.num_heads + arch.num_kv_heads
    return heads - (heads * padded(arch.head_dim, 16) % OUTPUTS > 0)


def packed_layer(arch: Arch, tensors: Tensors, index: int, kind: PackedFormat) -> PackedLayer:
    at, size = f"model.layers.{index}", arch.head_dim
    hidden, vectors = padded(arch.hidden_size, GROUP), padded(arch.head_dim, 16)
    three = tuple(f"self_attn.{name}_proj" for name in "qkv")
    qkv = joined(tensors, at, tuple(f"{name}.weight" for name in three))
    bias = joined(tensors, at, tuple(f"{name}.bias" for name in three))
    output = by_heads(tensors[f"{at}.self_attn.o_proj.weight"].t().contiguous(), size).t()
    gate_bias = tensors.get(f"{at}.mlp.gate_proj.bias")
    assert qkv is not None
    before, spread = values_begin(arch) * vectors, None if bias is None else by_heads(bias[:, None], size)[:, 0]
    attention: PackedFormat = kind if index else "int8"
    values: PackedFormat = "int8" if arch.query_group > 1 else attention
    return PackedLayer(
        wide(tensors[f"{at}.input_layernorm.weight"], hidden),
        linear(by_heads(qkv, size)[:before], attention, None if spread is None else spread[:before]),
        linear(by_heads(qkv, size)[before:], values, None if spread is None else spread[before:]),
        wide(tensors[f"{at}.self_attn.q_norm.weight"], vectors) if arch.qk_norm else None,
        wide(tensors[f"{at}.self_attn.k_norm.weight"], vectors) if arch.qk_norm else None,
        linear(pack.pad_to(output, hidden, output.shape[1]), attention, tensors.get(f"{at}.self_attn.o_proj.bias")),
        wide(tensors[f"{at}.post_attention_layernorm.weight"], hidden),
        linear(
            pack.interleave(tensors[f"{at}.mlp.gate_proj.weight"], tensors[f"{at}.mlp.up_proj.weight"]),
            kind,
            None if gate_bias is None else pack.interleave(gate_bias, tensors[f"{at}.mlp.up_proj.bias"]),
        ),
        linear(
            pack.pad_to(tensors[f"{at}.mlp.down_proj.weight"], hidden, arch.intermediate_size),
            kind,
            tensors.get(f"{at}.mlp.down_proj.bias"),
        ),
    )


def packed_weights(arch: Arch, tensors: Tensors, kind: PackedFormat) -> PackedWeights:
    embedding = linear(tensors["model.embed_tokens.weight"], "int8" if arch.tied_head else kind, None)
    head = embedding if arch.tied_head else linear(tensors["lm_head.weight"], kind, None)
    layers = tuple(packed_layer(arch, tensors, index, kind) for index in range(arch.num_layers))
    return PackedWeights(embedding, layers, wide(tensors["model.norm.weight"], padded(arch.hidden_size, GROUP)), head)


def unpacked(packed: Packed) -> Tensor:
    return pack.unpack(packed.data, packed.weight_format)


def dense_layer(arch: Arch, tensors: Tensors, index: int, packed: PackedLayer) -> Layer:
    """The same layer as the torch decoder holds it, padding taken away again."""
    at, size, vectors, hidden = f"model.layers.{index}", arch.head_dim, padded(arch.head_dim, 16), arch.hidden_size
    heads, inner = arch.num_heads + 2 * arch.num_kv_heads, padded(arch.intermediate_size, GROUP)
    mixed = torch.cat((unpacked(packed.qk), unpacked(packed.v)))[: heads * vectors].view(heads, vectors, -1)
    qkv = mixed[:, :size, :hidden].reshape(-1, hidden)
    output = unpacked(packed.output)[:hidden, : arch.num_heads * vectors].view(hidden, arch.num_heads, vectors)
    pairs = unpacked(packed.gate_up).view(inner // 16, 2, 16, -1).transpose(0, 1).reshape(2, inner, -1)
    gate_up = pairs[:, : arch.intermediate_size, :hidden].reshape(-1, hidden)
    down = unpacked(packed.down)[:hidden, : arch.intermediate_size]
    return Layer(
        tensors[f"{at}.input_layernorm.weight"],
        Dense(qkv, joined(tensors, at, tuple(f"self_attn.{name}_proj.bias" for name in "qkv"))),
        tensors.get(f"{at}.self_attn.q_norm.weight"),
        tensors.get(f"{at}.self_attn.k_norm.weight"),
        Dense(output[:, :, :size].reshape(hidden, -1), tensors.get(f"{at}.self_attn.o_proj.bias")),
        tensors[f"{at}.post_attention_layernorm.weight"],
        Dense(gate_up, joined(tensors, at, ("mlp.gate_proj.bias", "mlp.up_proj.bias"))),
        Dense(down, tensors.get(f"{at}.mlp.down_proj.bias")),
    )


def dense_weights(arch: Arch, tensors: Tensors, packed: PackedWeights) -> Weights:
    layers = tuple(dense_layer(arch, tensors, i, layer) for i, layer in enumerate(packed.layers))
    embedding = unpacked(packed.embedding)[: arch.vocab_size, : arch.hidden_size].contiguous()
    head = unpacked(packed.head)[: arch.vocab_size, : arch.hidden_size].contiguous()
    return Weights(embedding, layers, tensors["model.norm.weight"], Dense(head))


@cache
def made(said: str, seed: int, kind: PackedFormat) -> PackedWeights:
    config = json.loads(said)
    return packed_weights(read_arch(config_of(config)), tensors_of(config, seed), kind)


def packed_decoder(
    *,
    seed: int = 0,
    context: int = 256,
    kind: PackedFormat = "int8",
    on: Isa = ISAS[0],
    threads: int = 1,
    **config: Any,  # fields of config.json
) -> PackedDecoder:
    """A random model for the CPU engine. Weights are shared between decoders: copy before changing them."""
    weights = made(json.dumps(config), seed, kind)
    return PackedDecoder(PackedModel(read_arch(config_of(config)), weights, context, program.load(on), threads=threads))


@contextmanager
def threaded(threads: int, **said: Any) -> Iterator[PackedDecoder]:
    """Its workers end with the test."""
    decoder = packed_decoder(threads=threads, **said)
    try:
        yield decoder
    finally:
        decoder.set_threads(1)


def torch_decoder(
    *,
    seed: int = 0,
    context: int = 256,
    kind: PackedFormat = "int8",
    rounded: bool = True,
    **config: Any,  # fields of config.json
) -> Decoder:
    """The torch decoder on the weights of the packed one of the same name; `rounded`: with the engine's own loss of
    precision, so that what is left between them is float32's."""
    arch, packed = read_arch(config_of(config)), made(json.dumps(config), seed, kind)
    weights = dense_weights(arch, tensors_of(config, seed), packed)
    if not rounded:
        return Decoder(arch, weights, Cache(arch, context, dtype=torch.float32))
    return Decoder(arch, with_rounding(arch, weights), RoundedCache(arch, context, dtype=torch.float32))


@dataclass(frozen=True, slots=True)
class Rounded:
    """A Linear whose rows are rounded as the engine does: eight bits, a scale to 64 inputs. `piece`: inputs that are
    padded to whole vectors together."""

    dense: Linear
    piece: int

    @property
    def num_bytes(self) -> int:
        return self.dense.num_bytes

    def __call__(self, rows: Tensor) -> Tensor:
        count, size = rows.shape
        vectors = functional.pad(rows.reshape(count, -1, self.piece), (0, -self.piece % 16)).flatten(1)
        groups = functional.pad(vectors, (0, -vectors.shape[1] % GROUP)).view(count, -1, GROUP)
        top = groups.abs().amax(-1, keepdim=True)
        codes = (groups * torch.where(top > SMALLEST, 127 / top, 0.0)).round()
        back = (codes * (top / 127)).flatten(1)[:, : vectors.shape[1]]
        return self.dense(back.view(count, -1, padded(self.piece, 16))[..., : self.piece].reshape(count, size))


class RoundedCache(Cache):
    """Holds what float16 can hold."""

    def write(self, layer: int, positions: slice | Tensor, keys_values: Tensor) -> None:
        super().write(layer, positions, keys_values.half())


def with_rounding(arch: Arch, weights: Weights) -> Weights:
    def layer(found: Layer) -> Layer:
        return replace(
            found,
            qkv=Rounded(found.qkv, arch.hidden_size),
            output=Rounded(found.output, arch.head_dim),
            gate_up=Rounded(found.gate_up, arch.hidden_size),
            down=Rounded(found.down, arch.intermediate_size),
        )

    layers = tuple(layer(found) for found in weights.layers)
    return replace(weights, layers=layers, head=Rounded(weights.head, arch.hidden_size))


def pieces(ids: Tensor, width: int) -> list[Tensor]:
    return [ids[start : start + width] for start in range(0, len(ids), width)]


def random_ids(count: int, *, vocab: int = TINY["vocab_size"], seed: int = 0) -> Tensor:
    return torch.randint(0, vocab, (count,), generator=torch.Generator().manual_seed(seed))
