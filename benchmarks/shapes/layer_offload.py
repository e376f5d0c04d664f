"""Decoders of a shape with offloaded layers: at a simulated rate, as through a bus, or really from disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from safetensors.torch import save_file

from benchmarks.shapes.random_weights import Shape
from localspec.core import paths
from localspec.core.drain import drain
from localspec.core.errors import UsageError
from localspec.core.sizes import read_size, size_words
from localspec.core.weight_formats import ListedFormat, find_format
from localspec.engine.arch import Arch, read_arch
from localspec.engine.decoder import Decoder
from localspec.engine.linear import linear_maker
from localspec.engine.offload import CopyIn, LayerStream, LayerTransfer, OnThread, copying
from localspec.loading.cpu_layout import Blueprint
from localspec.loading.footprint import SLOTS
from localspec.loading.kernels import load_decoder
from localspec.loading.offload import empty_copy, tensors
from localspec.loading.plan import Plan
from localspec.loading.sources import StateDictSource, WeightReader
from localspec.loading.torch import Assembly, with_cache
from localspec.loading.weight_cache import CachedWeights
from localspec.models.checkpoint import open_snapshot

if TYPE_CHECKING:
    from localspec.engine.cpu.decoder import PackedDecoder

L = TypeVar("L")
REAL = "real"


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast layers come: in bytes a second, or None for as fast as the disk gives them."""

    bytes_per_second: int | None = None

    def carry(self, num_bytes: int) -> Callable[[CopyIn], LayerTransfer]:
        """A transfer for layers of so many bytes."""
        assert self.bytes_per_second is not None
        seconds = num_bytes / self.bytes_per_second
        return lambda copy_in: OnThread(throttled(copy_in, seconds))

    def __str__(self) -> str:
        return (
            "as the disk gives them" if self.bytes_per_second is None else f"at {size_words(self.bytes_per_second)}/s"
        )


def read_rate(written: str) -> Rate:
    if written == REAL:
        return Rate()
    found = read_size(written.removesuffix("/s"))
    if found is None:
        raise UsageError(f"'{written[:40]}' is not a rate.", hint="Try: 2GB/s, or real")
    return Rate(found)


def offloaded(
    decoder: Decoder | PackedDecoder, resident: int, carry: Callable[[CopyIn], LayerTransfer] = OnThread
) -> Decoder | PackedDecoder:
    """The same weights and context, the layers from `resident` on in memory that is not computed from."""
    if isinstance(decoder, Decoder):
        weights = decoder.weights
        stream = elsewhere(weights.layers, resident, carry)
        weights = replace(weights, layers=weights.layers[:resident], stream=stream)
        return Decoder(decoder.arch, weights, decoder.cache)
    packed = decoder.weights
    brought = elsewhere(packed.layers, resident, carry)
    packed = replace(packed, layers=packed.layers[:resident], stream=brought)
    model = decoder.model
    return type(decoder)(type(model)(model.arch, packed, model.context, model.program))


def elsewhere(layers: tuple[L, ...], first: int, carry: Callable[[CopyIn], LayerTransfer]) -> LayerStream[L]:
    slots = [empty_copy(layers[first], torch.empty_like) for _ in range(SLOTS)]
    copy_in = copying([tensors(layer) for layer in layers[first:]], [tensors(slot) for slot in slots], first)
    return LayerStream(carry(copy_in), slots, first, len(layers))


def throttled(copy_in: CopyIn, seconds: float) -> CopyIn:
    """Each layer takes so long."""

    def slowly(layer: int, slot: int) -> None:
        started = perf_counter()
        copy_in(layer, slot)
        sleep(max(seconds - (perf_counter() - started), 0))

    return slowly


def from_host(
    arch: Arch, source: StateDictSource, kind: ListedFormat, *, resident: int, context: int, device: str
) -> Decoder:
    """Layers from `resident` on in pinned main memory, as a GPU's loader has them."""
    maker = linear_maker(find_format(kind, device))
    weights = drain(Assembly(arch, WeightReader(source), maker).weights(resident))
    return with_cache(arch, weights, maker, context)


@contextmanager
def from_disk(
    shape: Shape, source: StateDictSource, kind: ListedFormat, *, resident: int, context: int
) -> Iterator[Decoder | PackedDecoder]:
    """A decoder loaded as any model is, from files that end with it: they lie where packed copies do, whose disk is
    the one that layers would come from."""
    with TemporaryDirectory(dir=paths.packed_dir(), prefix="bench-") as name:
        folder = Path(name)
        config = {**shape.config(context), "dtype": "bfloat16"}
        (folder / "config.json").write_text(json.dumps(config))
        save_file(source.tensors, folder / "model.safetensors")
        snapshot, plan = open_snapshot(folder), Plan(find_format(kind), context, resident=resident)
        try:
            decoder = cast("Decoder | PackedDecoder", drain(load_decoder(snapshot, plan)))
            os.sync()  # what waits in memory to be written would be read from there
            yield decoder
            decoder.close()
        finally:
            if plan.packed:
                copy = CachedWeights(snapshot, Blueprint(read_arch(snapshot.config), plan.packed), resident=resident)
                copy.file().unlink(missing_ok=True)
