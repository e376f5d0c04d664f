"""Checkpoint and plan to a decoder, some rows at a time from safetensors; peak memory is the weights and those rows.

Knows the tensor names of the Llama family. Decides nothing: the plan did. Never runs code from a model.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import cached_property

import torch
from torch import Tensor

from localspec.core.drain import drain
from localspec.core.events import Loading, Notice
from localspec.core.sizes import size_words
from localspec.engine.arch import Arch
from localspec.engine.cache import Cache, kv_dtype
from localspec.engine.cuda_graphs import CAPTURES, Graphed
from localspec.engine.decoder import Decoder, Layer, Weights
from localspec.engine.four_bit import BLOCK, can_join, dequantised, joined
from localspec.engine.linear import Dense, FloatLinears, FourBitLinears, Linear, LinearMaker, Quantiser, linear_maker
from localspec.engine.offload import LayerStream
from localspec.loading.bnb import read_stored
from localspec.loading.footprint import FIRST_LAYER, SLOTS, footprint
from localspec.loading.offload import from_files, from_main_memory, pinned
from localspec.loading.plan import Plan
from localspec.loading.progress import progress
from localspec.loading.quantised_linears import HEAD, Parts, QuantisedContents, linears, llama_linears
from localspec.loading.sources import (
    TensorSource,
    WeightReader,
    open_source,
    refuse_not_numbers,
    sizes_to_read,
    slabs,
    spans,
)
from localspec.loading.weight_cache import CachedWeights
from localspec.models.checkpoint import Snapshot
from localspec.models.prequantised.stored_format import stored_format


class Assembly:
    """Turns a source's tensors into weights of one format on one device; those that are in it already stay as they are.

    `keep_head`: the head is left in 16 bits, whatever the format. `kept`: what linears were made of at an earlier
    start, by their first weight's name; `made` has this one's.
    """

    def __init__(self, arch: Arch, reader: WeightReader, maker: LinearMaker, *, keep_head: bool = False) -> None:
        self.arch, self.reader, self.maker = arch, reader, maker
        self.kept: Mapping[str, Parts] = {}
        self.made: dict[str, Linear] = {}
        self.floats = maker if isinstance(maker, FloatLinears) else FloatLinears(maker.table, maker.device)
        self.head_maker = self.floats if keep_head else maker

    def rows(self, name: str, first: int, last: int, *shape: int) -> Tensor:
        """Some rows of a tensor. NaN shows in a forward, but a quantised NaN would have become a number."""
        found = self.reader.rows(name, first, last, shape)
        if self.maker is not self.floats:
            refuse_not_numbers(name, found)
        return found

    def tensor(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return self.rows(name, 0, shape[0], *shape).to(self.maker.device, dtype or self.maker.stream, copy=True)

    def fused(self, names: list[str], rows: list[int], inputs: int, *, bias: bool = False) -> Linear:
        """Several linears over the same rows as one."""
        offsets = [self.tensor(f"{name}.bias", n) for name, n in zip(names, rows, strict=True)] if bias else []
        offset = torch.cat(offsets) if offsets else None
        weights = [f"{name}.weight" for name in names]
        if isinstance(self.maker, FourBitLinears) and self.has_stored:
            return self.stored(self.maker, weights, rows, inputs, offset)
        return self.quantised(self.maker, weights, rows, inputs, offset)

    def quantised(
        self, maker: LinearMaker, names: list[str], rows: list[int], inputs: int, bias: Tensor | None
    ) -> Linear:
        """Several weights as one: from the weight cache, else made."""
        shape = (sum(rows), inputs)
        if (parts := self.kept.get(names[0])) and isinstance(maker, Quantiser):
            for name, n in zip(names, rows, strict=True):
                self.reader.check(name, (n, inputs))
            return maker.restored(parts, shape, bias)
        return maker.linear(self.slabs(names, rows, inputs), shape, bias)

    @cached_property
    def has_stored(self) -> bool:
        """Whether the checkpoint is quantised by bitsandbytes already."""
        return any(".quant_state.bitsandbytes__" in name for name in self.reader.source.names())

    def stored(
        self, maker: FourBitLinears, names: list[str], rows: list[int], inputs: int, bias: Tensor | None
    ) -> Linear:
        """A prequantised linear. Weights left in floats stay in floats, and so do those fused with them."""
        shapes = [(n, inputs) for n in rows]
        found = [read_stored(self.reader, name, shape, maker.device) for name, shape in zip(names, shapes, strict=True)]
        quantised = [part for part in found if part is not None]
        if len(quantised) == len(names) and can_join(quantised):
            return maker.laid_out(*joined(quantised), bias)
        parts = [
            self.tensor(name, *shape, dtype=self.floats.stream) if part is None else dequantised(*part)
            for name, shape, part in zip(names, shapes, found, strict=True)
        ]
        return self.floats.linear(parts, (sum(rows), inputs), bias)

    def slabs(self, names: list[str], rows: list[int], inputs: int) -> Iterator[Tensor]:
        """The rows of several tensors as if they were one's, few at a time."""
        sizes = dict(zip(names, rows, strict=True))
        for first, last in slabs(sum(rows), inputs, BLOCK):
            parts = spans(sizes, first, last)
            yield torch.cat([self.rows(name, low, high, sizes[name], inputs) for name, low, high in parts])

    def layer(self, index: int) -> Layer:
        arch, at = self.arch, f"model.layers.{index}"
        q, kv, hidden = arch.num_heads * arch.head_dim, arch.num_kv_heads * arch.head_dim, arch.hidden_size
        attention, mlp = f"{at}.self_attn", f"{at}.mlp"
        qkv = [f"{attention}.{part}_proj" for part in "qkv"]
        return Layer(
            attention_norm=self.tensor(f"{at}.input_layernorm.weight", hidden),
            qkv=self.fused(qkv, [q, kv, kv], hidden, bias=arch.qkv_bias),
            q_norm=self.tensor(f"{attention}.q_norm.weight", arch.head_dim) if arch.qk_norm else None,
            k_norm=self.tensor(f"{attention}.k_norm.weight", arch.head_dim) if arch.qk_norm else None,
            output=self.fused([f"{attention}.o_proj"], [hidden], q, bias=arch.output_bias),
            mlp_norm=self.tensor(f"{at}.post_attention_layernorm.weight", hidden),
            gate_up=self.fused(
                [f"{mlp}.gate_proj", f"{mlp}.up_proj"], [arch.intermediate_size] * 2, hidden, bias=arch.mlp_bias
            ),
            down=self.fused([f"{mlp}.down_proj"], [hidden], arch.intermediate_size, bias=arch.mlp_bias),
        )

    def weights(self, resident: int | None = None) -> Generator[int, None, Weights]:
        """Yields how many bytes more are read. `resident`: so many layers stay in memory, and the others are offloaded;
        None for all."""
        arch = self.arch
        embedding = self.embedding()
        layers = yield from self.layers(range(arch.num_layers if resident is None else resident))
        stream = None if resident is None else (yield from self.stream(resident))
        norm = self.tensor("model.norm.weight", arch.hidden_size)
        head = self.head(embedding)
        self.reader.refuse_unused(tied_head=arch.tied_head)
        yield self.reader.just_read()
        return Weights(embedding, tuple(layers), norm, head, stream)

    def layers(self, indices: Iterable[int]) -> Generator[int, None, list[Layer]]:
        found = []
        for index in indices:
            found.append(layer := self.layer(index))
            self.made |= linears(index, layer)
            yield self.reader.just_read()
        return found

    def stream(self, first: int) -> Generator[int, None, LayerStream[Layer]]:
        """The layers from `first` on: a CPU reads them from the checkpoint itself, as they are; a GPU has made of them
        what it computes with, and copies that from main memory."""
        if self.maker.device == "cpu":
            slots = yield from self.layers([first] * SLOTS)
            return from_files(self.arch, self.reader, slots, first)
        far = []
        for index in range(first, self.arch.num_layers):
            far.append(layer := pinned(self.layer(index)))
            self.made |= linears(index, layer)
            yield self.reader.just_read()
        return from_main_memory(far, self.maker.device, first)

    def embedding(self) -> Tensor:
        name, shape = "model.embed_tokens.weight", (self.arch.vocab_size, self.arch.hidden_size)
        table = torch.empty(shape, dtype=self.maker.table, device=self.maker.device)
        for first, last in slabs(*shape, BLOCK):
            table[first:last] = self.rows(name, first, last, *shape).to(table.device, table.dtype)
        return table

    def head(self, embedding: Tensor) -> Linear:
        """The embedding itself where the two are tied and it may stay in floats."""
        shape = self.arch.vocab_size, self.arch.hidden_size
        if not self.arch.tied_head:
            name, maker = HEAD, self.maker
            if isinstance(maker, FourBitLinears) and (already := read_stored(self.reader, name, shape, maker.device)):
                return maker.laid_out(*already, None)
            self.made[HEAD] = head = self.quantised(self.head_maker, [name], [shape[0]], shape[1], None)
            return head
        if self.head_maker is self.floats:
            return Dense(embedding)
        if (parts := self.kept.get(HEAD)) and isinstance(self.head_maker, Quantiser):
            return self.head_maker.restored(parts, shape, None)
        rows = (embedding[first:last] for first, last in slabs(*shape, BLOCK))
        self.made[HEAD] = head = self.head_maker.linear(rows, shape, None)
        return head


def assemble(arch: Arch, source: TensorSource, *, dtype: torch.dtype, context: int, device: str = "cpu") -> Decoder:
    """A decoder of floats at once, without progress."""
    return assemble_in(FloatLinears(dtype, device), arch, WeightReader(source), context=context)


def assemble_in(
    maker: LinearMaker, arch: Arch, reader: WeightReader, *, context: int, keep_head: bool = False
) -> Decoder:
    """A decoder in any format of torch or bitsandbytes at once, without progress."""
    return with_cache(arch, drain(Assembly(arch, reader, maker, keep_head=keep_head).weights()), maker, context)


def with_cache(arch: Arch, weights: Weights, maker: LinearMaker, context: int) -> Decoder:
    cache = Cache(arch, context, dtype=kv_dtype(arch, context, maker.stream), device=maker.device)
    capture = CAPTURES.get(maker.device)
    return Graphed(arch, weights, cache, capture()) if capture else Decoder(arch, weights, cache)


def load_torch(snapshot: Snapshot, arch: Arch, plan: Plan, stage: str) -> Generator[Loading | Notice, None, Decoder]:
    """A decoder in a format that torch or bitsandbytes computes, with Loading events in bytes."""
    maker = linear_maker(plan.weight_format, threshold=plan.options.int8_threshold)
    assembly = Assembly(arch, WeightReader(open_source(snapshot)), maker, keep_head=plan.options.keep_head)
    if isinstance(maker, Quantiser) and not stored_format(snapshot.config):
        weights = yield from quantised(snapshot, assembly, maker, plan, stage)
    else:
        weights = yield from progress(stage, bytes_to_read(snapshot, plan), assembly.weights(plan.resident))
    return with_cache(arch, weights, maker, plan.context)


def quantised(
    snapshot: Snapshot, assembly: Assembly, maker: Quantiser, plan: Plan, stage: str
) -> Generator[Loading | Notice, None, Weights]:
    """Reads the weight cache if it is intact; else quantises, and caches the result if asked to."""
    contents = QuantisedContents.of(maker, llama_linears(assembly.arch, keep_head=plan.options.keep_head))
    copy, found = CachedWeights(snapshot, contents, asked=True), Parts()
    yield from progress(stage, contents.num_bytes, copy.read(found))
    assembly.kept = contents.join(found)
    if found:
        return drain(assembly.weights(plan.resident))
    weights = yield from progress(stage, bytes_to_read(snapshot, plan), assembly.weights(plan.resident))
    if plan.options.save_quantized:
        yield from copy.keep(contents.split(assembly.made))
    return weights


def plan_words(snapshot: Snapshot, plan: Plan) -> str:
    """How much memory it should have taken."""
    needs = footprint(snapshot, plan.weight_format, plan.context, keep_head=plan.options.keep_head)
    return size_words(needs.whole if plan.resident is None else needs.offloaded(plan.resident))


def bytes_to_read(snapshot: Snapshot, plan: Plan) -> int:
    """Bytes of the snapshot that are read before the first question."""
    sizes = sizes_to_read(snapshot)
    if plan.resident is None or plan.device == "cuda":
        return sum(sizes.values())
    layer = sum(size for name, size in sizes.items() if name.startswith(FIRST_LAYER))
    later = int(snapshot.config["num_hidden_layers"]) - plan.resident - SLOTS
    return sum(sizes.values()) - later * layer
