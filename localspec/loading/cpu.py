"""Checkpoint to the CPU engine's blocks, some rows at a time: peak memory is the packed model and a few rows.

Knows the tensor names of the Llama family and how the engine wants heads, gates and widths laid out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from localspec.core.errors import DoesNotFit, EngineError, UsageError
from localspec.core.events import Loading, Notice
from localspec.core.main_memory import trim
from localspec.core.weight_formats import FLOATS
from localspec.engine.arch import Arch
from localspec.engine.cpu.formats import GROUP, OUTPUTS, padded
from localspec.engine.cpu.pack import Packed, interleave, pack, pad_rows, pad_to
from localspec.engine.cpu.pages import in_large_pages
from localspec.engine.offload import LayerStream, OnThread
from localspec.loading.cpu_layout import LINEARS, Blueprint, LayoutTensor
from localspec.loading.footprint import SLOTS
from localspec.loading.plan import Plan
from localspec.loading.progress import progress
from localspec.loading.sources import WeightReader, open_source, refuse_not_numbers, slabs, spans
from localspec.loading.weight_cache import CachedWeights, sentence
from localspec.models.checkpoint import Snapshot

if TYPE_CHECKING:
    from localspec.engine.cpu.decoder import PackedDecoder
    from localspec.engine.cpu.model import PackedLayer, PackedWeights
    from localspec.engine.cpu.program import Program

Tensors = dict[str, Tensor]
Keep = Callable[[str, Tensor], None]


class Packer:
    """Makes every piece of a blueprint from the tensors of a checkpoint."""

    def __init__(
        self, blueprint: Blueprint, reader: WeightReader, program: Program | None = None, keep: Keep | None = None
    ) -> None:
        """Many times faster with the compiled engine than without. What is made goes to `keep`, else into `made`."""
        self.blueprint, self.arch, self.reader, self.program = blueprint, blueprint.arch, reader, program
        self.made: Tensors = {}
        self.keep = keep or self.made.__setitem__
        self.workers = torch.get_num_threads()

    def pieces(self) -> Generator[int, None, None]:
        """Packs, some rows on each core; yields how many bytes more are packed."""
        with one_thread(), ThreadPoolExecutor(self.workers) as self.threads:
            yield from self.model()

    def model(self) -> Iterator[int]:
        embedding, hidden = "model.embed_tokens.weight", self.arch.hidden_size
        yield from self.linear("embedding", self.plain(embedding, self.arch.vocab_size, hidden))
        for index in range(self.arch.num_layers):
            yield from self.layer(index)
            trim()
        self.keep("norm", self.vector("model.norm.weight", hidden, self.blueprint.hidden))
        if not self.blueprint.shares_head:
            yield from self.linear("head", self.plain("lm_head.weight", self.arch.vocab_size, hidden))
        self.reader.refuse_unused(tied_head=self.arch.tied_head)

    def layer(self, index: int) -> Iterator[int]:
        arch, blueprint, at = self.arch, self.blueprint, f"model.layers.{index}"
        attention, mlp = f"{at}.self_attn", f"{at}.mlp"
        for name, stored in (("attention_norm", "input_layernorm"), ("mlp_norm", "post_attention_layernorm")):
            self.keep(f"{index}.{name}", self.vector(f"{at}.{stored}.weight", arch.hidden_size, blueprint.hidden))
        for name in ("q_norm", "k_norm") if arch.qk_norm else ():
            self.keep(f"{index}.{name}", self.vector(f"{attention}.{name}.weight", arch.head_dim, blueprint.head))
        before = blueprint.heads_before_values
        yield from self.linear(f"{index}.qk", self.heads(attention, 0, before))
        yield from self.linear(f"{index}.v", self.heads(attention, before, blueprint.heads))
        yield from self.linear(f"{index}.output", self.attended(f"{attention}.o_proj.weight"))
        yield from self.linear(f"{index}.gate_up", self.gated(mlp))
        down = self.plain(f"{mlp}.down_proj.weight", arch.hidden_size, arch.intermediate_size)
        yield from self.linear(f"{index}.down", down)
        self.biases(index, attention, mlp)

    def biases(self, index: int, attention: str, mlp: str) -> None:
        arch, hidden = self.arch, self.blueprint.hidden
        if arch.qkv_bias:
            parts = [self.read(f"{attention}.{part}_proj.bias", size) for part, size in self.head_rows().items()]
            spread = pad_rows(torch.cat(parts)[:, None], self.blueprint.heads, arch.head_dim)[:, 0]
            before = self.blueprint.heads_before_values * self.blueprint.head
            for name, part in (("qk", spread[:before]), ("v", spread[before:])):
                self.keep(f"{index}.{name}.bias", self.padded(f"{index}.{name}.bias", part))
        if arch.output_bias:
            self.keep(f"{index}.output.bias", self.vector(f"{attention}.o_proj.bias", arch.hidden_size, hidden))
        if arch.mlp_bias:
            gate, up = (self.read(f"{mlp}.{part}_proj.bias", arch.intermediate_size) for part in ("gate", "up"))
            self.keep(f"{index}.gate_up.bias", self.padded(f"{index}.gate_up.bias", interleave(gate, up)))
            self.keep(f"{index}.down.bias", self.vector(f"{mlp}.down_proj.bias", arch.hidden_size, hidden))

    def linear(self, name: str, slabs: Iterator[Tensor]) -> Iterator[int]:
        """Packs a piece from slabs of its rows, in order; all but the last are whole blocks. Missing rows are zeros."""
        piece = self.blueprint.pieces[name]
        data, at, under_way = empty_piece(piece), 0, deque[Future[int]]()
        nothing = torch.zeros(0, piece.shape[1] * GROUP)
        for slab in chain(slabs, [nothing]):
            last = at + padded(slab.shape[0], OUTPUTS) // OUTPUTS if slab.shape[0] else piece.shape[0]
            under_way.append(self.threads.submit(self.fill, data[at:last], slab, piece))
            at = last
            if len(under_way) > self.workers:
                yield under_way.popleft().result()
        for one in under_way:
            yield one.result()
        self.keep(name, data)

    def fill(self, data: Tensor, rows: Tensor, piece: LayoutTensor) -> int:
        """Packs rows, and zeros below and beside them, into so many blocks."""
        assert piece.weight_format is not None
        if data.shape[0]:
            whole = pad_to(rows, data.shape[0] * OUTPUTS, data.shape[1] * GROUP)
            data.copy_(pack(whole, piece.weight_format, self.program))
        return data.nbytes

    def plain(self, name: str, outputs: int, inputs: int) -> Iterator[Tensor]:
        """Yields a tensor's rows unchanged."""
        for first, last in slabs(outputs, inputs, OUTPUTS):
            yield self.rows(name, first, last, outputs, inputs)

    def heads(self, attention: str, start: int, end: int) -> Iterator[Tensor]:
        """The rows of some of the queries', keys' and values' heads, each padded to whole vectors; two heads always
        fill blocks."""
        size, hidden = self.arch.head_dim, self.arch.hidden_size
        sizes = {f"{attention}.{part}_proj.weight": rows for part, rows in self.head_rows().items()}
        for first, last in slabs(end - start, size * hidden, 2):
            parts = spans(sizes, (start + first) * size, (start + last) * size)
            rows = torch.cat([self.rows(name, low, high, sizes[name], hidden) for name, low, high in parts])
            yield pad_rows(rows, last - first, size)

    def head_rows(self) -> dict[str, int]:
        arch = self.arch
        queries, keys = arch.num_heads * arch.head_dim, arch.num_kv_heads * arch.head_dim
        return {"q": queries, "k": keys, "v": keys}

    def attended(self, name: str) -> Iterator[Tensor]:
        """The output's rows; its inputs are heads, each padded to whole vectors."""
        arch, wide = self.arch, self.blueprint.head
        for rows in self.plain(name, arch.hidden_size, arch.num_heads * arch.head_dim):
            by_head = rows.view(-1, arch.num_heads, arch.head_dim)
            yield torch.nn.functional.pad(by_head, (0, wide - arch.head_dim)).flatten(1)

    def gated(self, mlp: str) -> Iterator[Tensor]:
        """Gate and up, sixteen rows of each in turn."""
        inner, hidden = self.arch.intermediate_size, self.arch.hidden_size
        for first, last in slabs(inner, 2 * hidden, GROUP):
            gate, up = (self.rows(f"{mlp}.{part}_proj.weight", first, last, inner, hidden) for part in ("gate", "up"))
            yield interleave(gate, up)

    def vector(self, name: str, size: int, wide: int) -> Tensor:
        """A norm's weight or a bias, zeros behind it."""
        return torch.nn.functional.pad(self.read(name, size), (0, wide - size))

    def padded(self, name: str, vector: Tensor) -> Tensor:
        """Pads a vector to the length of its piece."""
        return torch.nn.functional.pad(vector, (0, self.blueprint.pieces[name].shape[0] - vector.shape[0]))

    def read(self, name: str, *shape: int) -> Tensor:
        return self.rows(name, 0, shape[0], *shape)

    def rows(self, name: str, first: int, last: int, *shape: int) -> Tensor:
        """Float32, every one a number."""
        rows = self.reader.rows(name, first, last, shape).float()
        refuse_not_numbers(name, rows)
        return rows


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits torch to one thread: beside other threads, or for small steps, more would mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def assemble_packed(
    blueprint: Blueprint, tensors: Mapping[str, Tensor], stream: LayerStream[PackedLayer] | None = None
) -> PackedWeights:
    """Weights of a decoder from their pieces, those of streamed layers left out."""
    from localspec.engine.cpu.model import PackedWeights

    count = stream.first if stream else blueprint.arch.num_layers
    layers = tuple(assemble_layer(blueprint, tensors, index) for index in range(count))
    embedding = assemble_linear(blueprint, tensors, "embedding")
    head = embedding if blueprint.shares_head else assemble_linear(blueprint, tensors, "head")
    return PackedWeights(embedding, layers, tensors["norm"], head, stream)


def assemble_layer(blueprint: Blueprint, tensors: Mapping[str, Tensor], index: int) -> PackedLayer:
    from localspec.engine.cpu.model import PackedLayer

    return PackedLayer(
        attention_norm=tensors[f"{index}.attention_norm"],
        q_norm=tensors.get(f"{index}.q_norm"),
        k_norm=tensors.get(f"{index}.k_norm"),
        mlp_norm=tensors[f"{index}.mlp_norm"],
        **{name: assemble_linear(blueprint, tensors, f"{index}.{name}") for name in LINEARS},
    )


def assemble_linear(blueprint: Blueprint, tensors: Mapping[str, Tensor], name: str) -> Packed:
    weight_format = blueprint.pieces[name].weight_format
    assert weight_format is not None
    return Packed(weight_format, tensors[name], tensors.get(f"{name}.bias"))


def pack_source(blueprint: Blueprint, reader: WeightReader, program: Program | None = None) -> PackedWeights:
    """Packs a whole model without progress."""
    packer = Packer(blueprint, reader, program)
    for _ in packer.pieces():
        pass
    return assemble_packed(blueprint, packer.made)


def load_packed(
    snapshot: Snapshot, arch: Arch, plan: Plan, *, stage: str
) -> Generator[Loading | Notice, None, PackedDecoder]:
    """Reads the weight cache if it is intact; else packs the weights, in one of the processes that start together."""
    from localspec.engine.cpu.decoder import PackedDecoder
    from localspec.engine.cpu.isa import choose
    from localspec.engine.cpu.model import PackedModel
    from localspec.engine.cpu.program import load

    program = load(choose())
    assert plan.packed is not None
    blueprint = Blueprint(arch, plan.packed)
    copy = CachedWeights(snapshot, blueprint, resident=plan.resident)
    found: Tensors = {}
    yield from progress(stage, blueprint.num_bytes, copy.read(found))
    if not found:
        with copy.making() as one:
            for _ in one.wait():
                yield Loading("waiting for another start, which packs these weights", 0, 1, "steps")
            found = yield from one.alive(made(copy, blueprint, program, plan, stage))
    if not found:
        message = "The packed weights cannot be read back from disk."
        raise EngineError(message, hint="Set LOCALSPEC_CACHE_DIR to a folder on another disk.")
    stream = None if plan.resident is None else stream_from(copy, blueprint, plan.resident)
    return PackedDecoder(PackedModel(arch, assemble_packed(blueprint, found, stream), plan.context, program))


def made(
    copy: CachedWeights, blueprint: Blueprint, program: Program, plan: Plan, stage: str
) -> Generator[Loading | Notice, None, Tensors]:
    """Reads a cache that an earlier process has finished meanwhile; else packs the weights and caches them."""
    found: Tensors = {}
    yield from progress(stage, blueprint.num_bytes, copy.read(found))
    if found:
        return found
    if plan.resident is None:
        packer = Packer(blueprint, WeightReader(open_source(copy.snapshot)), program)
        yield from progress(stage, blueprint.num_bytes, packer.pieces())
        yield from copy.keep(packer.made)
        return packer.made
    yield from pack_to_disk(copy, blueprint, program, stage)
    yield from progress(stage, blueprint.num_bytes, copy.read(found))
    return found


def pack_to_disk(copy: CachedWeights, blueprint: Blueprint, program: Program, stage: str) -> Iterator[Loading]:
    """Packs straight to disk, tensor by tensor, where the whole does not fit in memory."""
    try:
        with copy.writing(copy.file()) as put:
            packer = Packer(blueprint, WeightReader(open_source(copy.snapshot)), program, put)
            yield from progress(stage, blueprint.num_bytes, packer.pieces())
    except (OSError, UsageError) as fault:
        reason = (fault.strerror if isinstance(fault, OSError) else fault.message) or str(fault)
        raise DoesNotFit(
            f"{copy.snapshot.name} does not fit in memory, nor its packed weights on disk ({reason.rstrip('.')}).",
            hint=sentence(", ".join([*copy.ways_out(fault), f"or try --quant {FLOATS[-1]}, which needs no copy"])),
        ) from fault


def stream_from(copy: CachedWeights, blueprint: Blueprint, first: int) -> LayerStream[PackedLayer]:
    """Streams the layers from `first` on, each read from the weight cache when it is needed."""
    slots = [{piece.name: empty_piece(piece) for piece in blueprint.layer(first)} for _ in range(SLOTS)]
    layers = [assemble_layer(blueprint, slot, first) for slot in slots]
    return LayerStream(OnThread(copy.reading(slots)), layers, first, blueprint.arch.num_layers)


def empty_piece(piece: LayoutTensor) -> Tensor:
    return in_large_pages(torch.empty(piece.shape, dtype=torch.uint8 if piece.weight_format else torch.float32))
