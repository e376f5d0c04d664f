"""Models of well-known shapes with random weights, made in memory under a seed.

Speed depends on shape and format, not on what the weights say. Knows nothing about clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any  # Any: a config's fields

import torch
from torch import Tensor

from localspec.core.weight_formats import ListedFormat, find_format
from localspec.engine.arch import Arch, read_arch
from localspec.engine.decoder import Decoder
from localspec.engine.lengths import usual
from localspec.engine.linear import linear_maker
from localspec.loading.cpu import pack_source
from localspec.loading.cpu_layout import Blueprint
from localspec.loading.sources import StateDictSource, TensorSource, WeightReader
from localspec.loading.torch import Assembly, assemble_in, with_cache

if TYPE_CHECKING:
    from localspec.engine.cpu.decoder import PackedDecoder

BITS: dict[ListedFormat, float] = {"int8": 8.25, "int4": 4.5, "fp32": 32, "bf16": 16, "nf4": 4.25, "fp4": 4.25}
"""Bits of a weight, its share of the scales included; in int4 at most, since some weights have eight."""
USUAL: dict[str, tuple[ListedFormat, ...]] = {
    "cpu": ("int8", "int4", "fp32", "bf16", "nf4"),
    "cuda": ("bf16", "nf4", "int8"),
}
"""By device, those that are measured unless others are named. fp4 takes the time that nf4 takes."""
SPREAD = 0.02  # of a weight, as models are initialised
RARE = 0.5  # of that spread, in the head's rows for words that are never the likeliest


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that decide the time of a forward. Each is whole blocks and groups of the packed formats."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    vocab_size: int

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def num_weights(self) -> int:
        return sum(prod(size) for size in self.tensors().values())

    def config(self, context: int) -> dict[str, Any]:
        """The fields of a config.json."""
        return {
            "model_type": "llama",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "max_position_embeddings": context,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
        }

    def arch(self, context: int) -> Arch:
        return read_arch(self.config(context))

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes, as checkpoints of the Llama family have them."""
        hidden, inner, kv = self.hidden_size, self.intermediate_size, self.num_kv_heads * self.head_dim
        found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, hidden)}
        for index in range(self.num_layers):
            layer = {
                "input_layernorm": (hidden,),
                "self_attn.q_proj": (hidden, hidden),
                "self_attn.k_proj": (kv, hidden),
                "self_attn.v_proj": (kv, hidden),
                "self_attn.o_proj": (hidden, hidden),
                "post_attention_layernorm": (hidden,),
                "mlp.gate_proj": (inner, hidden),
                "mlp.up_proj": (inner, hidden),
                "mlp.down_proj": (hidden, inner),
            }
            found |= {f"model.layers.{index}.{name}.weight": size for name, size in layer.items()}
        return found | {"model.norm.weight": (hidden,), "lm_head.weight": (self.vocab_size, hidden)}


SHAPES = {
    "llama2-7b": Shape(32, 4096, 11008, 32, 32, 32000),
    "llama-1b": Shape(16, 2048, 8192, 32, 8, 32000),
    "llama-1b-128k": Shape(16, 2048, 8192, 32, 8, 128256),  # a draft head is short
    "135m": Shape(30, 576, 1536, 9, 3, 49152),
    "tiny": Shape(8, 384, 1024, 6, 2, 4096),
}


def frequent_words(vocab_size: int) -> int:
    """How many first words texts are made of: those that a short draft head has, where there would be one."""
    lengths = usual(vocab_size)
    return lengths.first if lengths else vocab_size


def random_tensors(shape: Shape, seed: int, device: str = "cpu") -> StateDictSource:
    """bfloat16, as checkpoints come: the same numbers for every format and every peer on a device. Words that a short
    draft head leaves out are rare, as in texts."""
    generator = torch.Generator(device).manual_seed(seed)

    def tensor(size: tuple[int, ...]) -> Tensor:
        made = torch.empty(size, dtype=torch.bfloat16, device=device)
        return made.fill_(1) if len(size) == 1 else made.normal_(std=SPREAD, generator=generator)

    tensors = {name: tensor(size) for name, size in shape.tensors().items()}
    tensors["lm_head.weight"][frequent_words(shape.vocab_size) :] *= RARE
    return StateDictSource(tensors)


def make_decoder(
    arch: Arch, source: TensorSource, kind: ListedFormat, *, context: int, threads: int, device: str = "cpu"
) -> Decoder | PackedDecoder:
    if find_format(kind, device).is_packed:
        from localspec.engine.cpu import isa, program
        from localspec.engine.cpu.decoder import PackedDecoder
        from localspec.engine.cpu.model import PackedModel

        engine = program.load(isa.choose())
        weights = pack_source(Blueprint(arch, "int8" if kind == "int8" else "int4"), WeightReader(source), engine)
        return PackedDecoder(PackedModel(arch, weights, context, engine, threads=threads))
    return assemble_in(linear_maker(find_format(kind, device)), arch, WeightReader(source), context=context)


def with_head_kept(decoder: Decoder, source: TensorSource, kind: ListedFormat) -> Decoder:
    """The same layers with the head in 16 bits, as transformers and --keep-head leave it."""
    maker = linear_maker(find_format(kind, decoder.device.type))
    head = Assembly(decoder.arch, WeightReader(source), maker, keep_head=True).head(decoder.weights.embedding)
    return with_cache(decoder.arch, replace(decoder.weights, head=head), maker, decoder.context)
