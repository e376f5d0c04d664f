"""Offloaded layers: floats from a snapshot's own files on a CPU, any format from pinned main memory on a GPU.

Knows which tensor of the Llama family lies where in a layer. Knows nothing about when a layer is needed.
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
from localspec.engine.offload import CopyIn, LayerStream, OnDevice, OnThread, copying
from localspec.loading.footprint import SLOTS
from localspec.loading.sources import TensorSource, WeightReader, lost, slabs

Part = TypeVar("Part")
READ_ELEMENTS = 1 << 23  # read at once; 32 MB where weights are unpacked
LINE = 64  # bytes; each tensor begins on a cache line


def from_files(arch: Arch, reader: WeightReader, slots: Sequence[Layer], first: int) -> LayerStream[Layer]:
    """Streams the layers first.. of a checkpoint: checked at once, read when they are needed."""
    for index in range(first, arch.num_layers):
        for name, target in parts(arch, index, slots[0]):
            reader.check(name, tuple(target.shape))
    copy_in = reading(arch, reader.source, slots)
    return LayerStream(OnThread(copy_in), slots, first, arch.num_layers)


def reading(arch: Arch, source: TensorSource, slots: Sequence[Layer]) -> CopyIn:
    def copy_in(index: int, slot: int) -> None:
        found = list(parts(arch, index, slots[slot]))
        try:
            for name, _ in found:
                source.announce(name, soon=True)
            for name, target in found:
                for first, last in slabs(target.shape[0], math.prod(target.shape[1:]), 1, at_once=READ_ELEMENTS):
                    target[first:last].copy_(source.rows(name, first, last))
                source.announce(name, soon=False)
        except (CheckpointError, OSError) as fault:
            raise lost(index) from fault

    return copy_in


def from_main_memory(far: Sequence[Layer], device: str, first: int) -> LayerStream[Layer]:
    """Streams the layers first.. of a model from `far`, in pinned memory."""
    if len({made_as(layer) for layer in far}) > 1:
        raise CheckpointError("Layers that are quantised differently cannot share a slot.", hint="Use --device cpu.")
    slots = [empty_copy(far[0], partial(torch.empty_like, device=device)) for _ in range(SLOTS)]
    copy_in = copying([tensors(layer) for layer in far], [tensors(slot) for slot in slots], first)
    return LayerStream(OnDevice(copy_in), slots, first, first + len(far))


def made_as(layer: Layer) -> tuple[object, ...]:
    """A layer's types and shapes: layers that share a slot have equal ones."""
    linears = (layer.qkv, layer.output, layer.gate_up, layer.down)
    states = (linear.state for linear in linears if isinstance(linear, FourBit))
    kinds = ((state.quant_type, state.blocksize) for state in states)
    return (*kinds, *((tensor.shape, tensor.dtype) for tensor in tensors(layer)))


def pinned(layer: Layer) -> Layer:
    """A copy in memory that a GPU reads by itself."""
    found = empty_copy(layer, Locked(sum(in_lines(tensor) for tensor in tensors(layer))).empty_like)
    for source, target in zip(tensors(layer), tensors(found), strict=True):
        target.copy_(source)
    return found


class Locked:
    """Page-locked main memory for tensors of so many bytes in all. torch's own rounds each tensor up to a power of two,
    and keeps the memory when they are gone."""

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
    """A tensor's bytes in whole cache lines."""
    return -(-tensor.nbytes // LINE) * LINE


def empty_copy(part: Part, empty_like: Callable[[Tensor], Tensor]) -> Part:
    """An uninitialised copy of a tensor, linear or layer, with the same layout."""
    found: Any = part  # Any: what is made is of the kind that was given
    if isinstance(part, Tensor):
        found = empty_like(part)
    elif isinstance(part, FourBit):  # its state is no record of ours
        copies = {name: empty_copy(tensor, empty_like) for name, tensor in part.parts().items()}
        found = part.made_of(copies, empty_copy(part.bias, empty_like))
    elif is_dataclass(part):
        copies = {field.name: empty_copy(getattr(part, field.name), empty_like) for field in fields(part)}
        found = replace(found, **copies)
    return cast(Part, found)


def tensors(part: object) -> list[Tensor]:
    """All tensors of a tensor, linear or layer, in a fixed order."""
    if isinstance(part, Tensor):
        return [part]
    if isinstance(part, FourBit):
        return [*part.parts().values(), *tensors(part.bias)]
    if not is_dataclass(part):
        return []
    return [tensor for field in fields(part) for tensor in tensors(getattr(part, field.name))]


def parts(arch: Arch, index: int, layer: Layer) -> Iterator[tuple[str, Tensor]]:
    """The checkpoint's tensors of a layer by name, each with the tensor of `layer` that it belongs in."""
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
        assert isinstance(linear, Dense), "only floats are read from a checkpoint's files"
        for part, whole in (("weight", linear.weight), ("bias", linear.bias)):
            if whole is not None:
                targets = torch.split(whole, list(sizes.values()))
                yield from zip((f"{at}.{name}.{part}" for name in sizes), targets, strict=True)
