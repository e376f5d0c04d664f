"""Layers that come and go: floats from a snapshot's own files on a CPU, any format from pinned main memory on a GPU.

Knows which tensor of the Llama family lies where in a layer. Knows nothing about when a layer is wanted.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from mmap import mmap
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from localspec.core.errors import CheckpointError
from localspec.engine.arch import Arch
from localspec.engine.decoder import Layer
from localspec.engine.linear import Dense, FourBit
from localspec.engine.offload import Fill, OnDevice, OnThread, Stream, copying
from localspec.loading.footprint import PLACES
from localspec.loading.sources import Reader, Source, lost, slabs

Part = TypeVar("Part")
READ_ELEMENTS = 1 << 23  # at once: where weights are unpacked, 32 MB
LINE = 64  # bytes of a cache line: each tensor begins with one


def from_files(arch: Arch, reader: Reader, places: Sequence[Layer], first: int) -> Stream[Layer]:
    """The layers first.. of a checkpoint, which are looked for at once and read when their turn comes."""
    for index in range(first, arch.num_layers):
        for name, room in parts(arch, index, places[0]):
            reader.check(name, tuple(room.shape))
    fill = reading(arch, reader.source, places)
    return Stream(OnThread(fill), places, first, arch.num_layers)


def reading(arch: Arch, source: Source, places: Sequence[Layer]) -> Fill:
    def fill(index: int, place: int) -> None:
        found = list(parts(arch, index, places[place]))
        try:
            for name, _ in found:
                source.announce(name, soon=True)
            for name, room in found:
                for first, last in slabs(room.shape[0], math.prod(room.shape[1:]), 1, at_once=READ_ELEMENTS):
                    room[first:last].copy_(source.rows(name, first, last))
                source.announce(name, soon=False)
        except (CheckpointError, OSError) as fault:
            raise lost(index) from fault

    return fill


def from_main_memory(far: Sequence[Layer], device: str, first: int) -> Stream[Layer]:
    """The layers first.. of a model, `far` in pinned memory."""
    if len({made_as(layer) for layer in far}) > 1:
        raise CheckpointError(
            "Layers that are quantised differently cannot take each other's place.", hint="Use --device cpu."
        )
    places = [room_like(far[0], partial(torch.empty_like, device=device)) for _ in range(PLACES)]
    fill = copying([tensors(layer) for layer in far], [tensors(place) for place in places], first)
    return Stream(OnDevice(fill), places, first, first + len(far))


def made_as(layer: Layer) -> tuple[object, ...]:
    """What two layers have in common that can lie in the same place."""
    linears = (layer.qkv, layer.output, layer.gate_up, layer.down)
    states = (linear.state for linear in linears if isinstance(linear, FourBit))
    kinds = ((state.quant_type, state.blocksize) for state in states)
    return (*kinds, *((tensor.shape, tensor.dtype) for tensor in tensors(layer)))


def pinned(layer: Layer) -> Layer:
    """In memory that a GPU copies from by itself."""
    found = room_like(layer, Locked(sum(in_lines(tensor) for tensor in tensors(layer))).empty_like)
    for source, target in zip(tensors(layer), tensors(found), strict=True):
        target.copy_(source)
    return found


class Locked:
    """Main memory that the system may not move, for tensors that need so many bytes in all. torch's own is as large as
    the next power of two, for each tensor, and is kept when they are gone."""

    def __init__(self, num_bytes: int) -> None:
        memory = mmap(-1, num_bytes)
        self.left = torch.frombuffer(memory, dtype=torch.uint8)
        lock(self.left.data_ptr(), num_bytes)
        weakref.finalize(memory, unlock, self.left.data_ptr()).atexit = False  # then the system does it

    def empty_like(self, tensor: Tensor) -> Tensor:
        size = in_lines(tensor)
        mine, self.left = self.left[:size], self.left[size:]
        return mine[: tensor.nbytes].view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


def lock(address: int, num_bytes: int) -> None:
    """https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html, cudaHostRegister"""
    cuda = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    if fault := int(cuda.cudaHostRegister(address, num_bytes, 0)):
        raise MemoryError(f"{num_bytes} bytes of main memory cannot be locked for the GPU (CUDA error {fault})")


def unlock(address: int) -> None:
    torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]


def in_lines(tensor: Tensor) -> int:
    """Its bytes in whole cache lines."""
    return -(-tensor.nbytes // LINE) * LINE


def room_like(part: Part, empty_like: Callable[[Tensor], Tensor]) -> Part:
    """A tensor, linear or layer as large, and laid out as this one is."""
    found: Any = part  # Any: what is made is of the kind that was given
    if isinstance(part, Tensor):
        found = empty_like(part)
    elif isinstance(part, FourBit):  # its state is no record of ours
        rooms = {name: room_like(tensor, empty_like) for name, tensor in part.parts().items()}
        found = part.made_of(rooms, room_like(part.bias, empty_like))
    elif is_dataclass(part):
        rooms = {field.name: room_like(getattr(part, field.name), empty_like) for field in fields(part)}
        found = replace(found, **rooms)
    return cast(Part, found)


def tensors(part: object) -> list[Tensor]:
    """All that a tensor, linear or layer has, in an order of its own."""
    if isinstance(part, Tensor):
        return [part]
    if isinstance(part, FourBit):
        return [*part.parts().values(), *tensors(part.bias)]
    if not is_dataclass(part):
        return []
    return [tensor for field in fields(part) for tensor in tensors(getattr(part, field.name))]


def parts(arch: Arch, index: int, layer: Layer) -> Iterator[tuple[str, Tensor]]:
    """The checkpoint's tensors of a layer by name, each with the place in `layer` where it belongs."""
    at, q, kv = f"model.layers.{index}", arch.num_heads * arch.head_dim, arch.num_kv_heads * arch.head_dim
    yield f"{at}.input_layernorm.weight", layer.attention_norm
    yield f"{at}.post_attention_layernorm.weight", layer.mlp_norm
    if layer.q_norm is not None and layer.k_norm is not None:
        yield f"{at}.self_attn.q_norm.weight", layer.q_norm
        yield f"{at}.self_attn.k_norm.weight", layer.k_norm
    wide = arch.intermediate_size
    for linear, sizes in (
        (layer.qkv, {"self_attn.q_proj": q, "self_attn.k_proj": kv, "self_attn.v_proj": kv}),
        (layer.output, {"self_attn.o_proj": arch.hidden_size}),
        (layer.gate_up, {"mlp.gate_proj": wide, "mlp.up_proj": wide}),
        (layer.down, {"mlp.down_proj": arch.hidden_size}),
    ):
        assert isinstance(linear, Dense), "only floats come and go"
        for part, room in (("weight", linear.weight), ("bias", linear.bias)):
            if room is not None:
                rooms = torch.split(room, list(sizes.values()))
                yield from zip((f"{at}.{name}.{part}" for name in sizes), rooms, strict=True)
