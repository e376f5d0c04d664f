"""Which tensors a packed model is made of: names, shapes and formats, from its Arch alone.

What memory it takes, what the packer makes and what a copy on disk must hold are all read here. In int4, what costs
little memory and loses much in four bits is in eight: values that several heads share, the first layer's attention,
and a tied head with its embedding (DECISIONS.md, 2026-11-23). Knows no tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from localspec.engine.arch import Arch
from localspec.engine.cpu.formats import FINER, GROUP, OUTPUTS, RECORD_BYTES, PackedFormat, padded
from localspec.engine.cpu.layout import CHUNK, partial_bytes

VECTOR = 16  # floats; a head's channels are padded to whole ones
KV_BYTES = 2  # float16
LINEARS = ("qk", "v", "output", "gate_up", "down")  # of a layer


@dataclass(frozen=True, slots=True)
class LayoutTensor:
    """One tensor: packed bytes [blocks, groups, record], or float32 [n]."""

    name: str
    shape: tuple[int, ...]
    weight_format: PackedFormat | None = None  # None: float32

    @property
    def is_bytes(self) -> bool:
        return self.weight_format is not None

    @property
    def num_bytes(self) -> int:
        elements = math.prod(self.shape)
        return elements if self.weight_format else 4 * elements


@dataclass(frozen=True)
class Blueprint:
    """A configuration in a format. Sizes are padded as the engine wants them."""

    arch: Arch
    weight_format: PackedFormat

    @property
    def made(self) -> str:
        return "packed"

    @property
    def hidden(self) -> int:
        return padded(self.arch.hidden_size, GROUP)

    @property
    def inner(self) -> int:
        return padded(self.arch.intermediate_size, GROUP)

    @property
    def head(self) -> int:
        return padded(self.arch.head_dim, VECTOR)

    @property
    def heads(self) -> int:
        """Number of heads of queries, keys and values together."""
        return self.arch.num_heads + 2 * self.arch.num_kv_heads

    @property
    def heads_before_values(self) -> int:
        """Number of heads in `qk`: queries and keys. Where they fill no whole blocks, the last one leads `v`."""
        heads = self.arch.num_heads + self.arch.num_kv_heads
        return heads - 1 if heads * self.head % OUTPUTS else heads

    @property
    def shares_head(self) -> bool:
        """A tied head is the embedding itself."""
        return self.arch.tied_head

    @property
    def table_format(self) -> PackedFormat:
        """The format of embedding and head. Rows that are only looked up may lose more than those multiplied with."""
        return FINER if self.shares_head else self.weight_format

    def format_of(self, index: int, name: str) -> PackedFormat:
        """The format of a layer's linear."""
        is_shared = name == "v" and self.arch.query_group > 1  # few weights, each of which several heads read
        is_first = index == 0 and name in ("qk", "v", "output")
        return FINER if is_shared or is_first else self.weight_format

    @cached_property
    def pieces(self) -> dict[str, LayoutTensor]:
        """Every tensor by name, in the order a forward reads them."""
        return {piece.name: piece for piece in self._pieces()}

    @property
    def num_bytes(self) -> int:
        return sum(piece.num_bytes for piece in self.pieces.values())

    def kv_bytes(self, context: int) -> int:
        """Size of the KV store, as PackedCache allocates it."""
        arch = self.arch
        return 2 * arch.num_layers * arch.num_kv_heads * padded(context, CHUNK) * self.head * KV_BYTES

    def scratch_bytes(self, context: int) -> int:
        """Size of what grows with the context beside the cache: rotary tables and partial results of attention."""
        arch = self.arch
        return arch.rotation_bytes(context) + partial_bytes(arch.num_heads, self.head, padded(context, CHUNK))

    def _pieces(self) -> Iterator[LayoutTensor]:
        yield from linear("embedding", self.table_format, self.arch.vocab_size, self.hidden)
        for index in range(self.arch.num_layers):
            yield from self.layer(index)
        yield LayoutTensor("norm", (self.hidden,))
        if not self.shares_head:
            yield from linear("head", self.table_format, self.arch.vocab_size, self.hidden)

    @property
    def layers(self) -> list[list[LayoutTensor]]:
        """The tensors of every layer, which lie side by side."""
        return [list(self.layer(index)) for index in range(self.arch.num_layers)]

    def layer(self, index: int) -> Iterator[LayoutTensor]:
        """The tensors of a layer."""
        arch, hidden = self.arch, self.hidden
        qk, v, output, gate_up, down = (self.format_of(index, name) for name in LINEARS)
        before, every = self.heads_before_values * self.head, self.heads * self.head
        yield LayoutTensor(f"{index}.attention_norm", (hidden,))
        yield from linear(f"{index}.qk", qk, before, hidden, bias=arch.qkv_bias)
        yield from linear(f"{index}.v", v, every - before, hidden, bias=arch.qkv_bias)
        if arch.qk_norm:
            yield LayoutTensor(f"{index}.q_norm", (self.head,))
            yield LayoutTensor(f"{index}.k_norm", (self.head,))
        attended = padded(arch.num_heads * self.head, GROUP)
        yield from linear(f"{index}.output", output, hidden, attended, bias=arch.output_bias)
        yield LayoutTensor(f"{index}.mlp_norm", (hidden,))
        yield from linear(f"{index}.gate_up", gate_up, 2 * self.inner, hidden, bias=arch.mlp_bias)
        yield from linear(f"{index}.down", down, hidden, self.inner, bias=arch.mlp_bias)


def linear(
    name: str, weight_format: PackedFormat, outputs: int, inputs: int, *, bias: bool = False
) -> Iterator[LayoutTensor]:
    """The pieces of a linear: its blocks, and its bias if it has one."""
    blocks = padded(outputs, OUTPUTS) // OUTPUTS
    yield LayoutTensor(name, (blocks, inputs // GROUP, RECORD_BYTES[weight_format]), weight_format)
    if bias:
        yield LayoutTensor(f"{name}.bias", (blocks * OUTPUTS,))
