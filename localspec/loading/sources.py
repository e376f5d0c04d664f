"""Reads a model's tensors from a snapshot's safetensors or a state dict, whole or some rows at a time.

Checks names and shapes against what the config says. Knows nothing about our formats and devices; what others have
quantised is floats here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from localspec.core.errors import REPEAT, CheckpointError, EngineError
from localspec.loading.tensor_names import check_name, check_shape, refuse_unexplained
from localspec.loading.unpacking.fields import SLAB_ELEMENTS
from localspec.loading.unpacking.gguf import Dequantised
from localspec.loading.unpacking.source import Unpacked
from localspec.models.checkpoint import Snapshot
from localspec.models.prequantised.weights import besides
from localspec.models.safetensors_index import DTYPE_BITS, TensorInfo


class TensorSource(Protocol):
    """Tensors by name, read when asked for."""

    def names(self) -> set[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str) -> Tensor: ...

    def rows(self, name: str, first: int, last: int) -> Tensor:
        """Rows first..last - 1 of a tensor."""
        ...

    def announce(self, name: str, *, soon: bool) -> None:
        """A tensor is read next, or not for a while: then nothing of it need be kept in memory."""
        ...


class StateDictSource:
    """Tensors already in memory: a state dict."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors

    def names(self) -> set[str]:
        return set(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def read(self, name: str) -> Tensor:
        return self.tensors[name]

    def rows(self, name: str, first: int, last: int) -> Tensor:
        return self.tensors[name][first:last]

    def announce(self, name: str, *, soon: bool) -> None:
        pass  # it is where it is


class Files:
    """A snapshot's safetensors. Mapped for each reading anew, so that what was read does not stay resident."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def names(self) -> set[str]:
        return set(self.snapshot.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.snapshot.tensors[name].shape

    def read(self, name: str) -> Tensor:
        return self.cut(name) if not self.shape(name) else self.rows(name, 0, self.shape(name)[0])

    def rows(self, name: str, first: int, last: int) -> Tensor:
        return self.cut(name, slice(first, last))

    def columns(self, name: str, first: int, last: int) -> Tensor:
        """Columns first..last - 1 of a tensor with two dimensions."""
        return self.cut(name, slice(None), slice(first, last))

    def cut(self, name: str, *where: slice) -> Tensor:
        file = self.snapshot.tensors[name].file
        try:
            with safe_open(file, framework="pt") as opened:
                found: Tensor = opened.get_slice(name)[where] if where else opened.get_tensor(name)
        except (SafetensorError, OSError) as fault:
            raise CheckpointError(f"{file} cannot be read ({fault}).", hint="Download the model again.") from fault
        return found

    def announce(self, name: str, *, soon: bool) -> None:
        info = self.snapshot.tensors[name]
        with info.file.open("rb") as stream:
            advise(stream.fileno(), info.begin, info.num_bytes, soon=soon)


def open_source(snapshot: Snapshot) -> TensorSource:
    """Opens a snapshot's tensors, whatever kind of file they are in and however they are quantised."""
    files = Files(snapshot)
    if snapshot.is_gguf:
        return Dequantised(files)
    return Unpacked(files, snapshot.unpacked) if snapshot.unpacked else files


def sizes_to_read(snapshot: Snapshot) -> dict[str, int]:
    """How many bytes the source of a snapshot gives for each tensor."""
    plain = snapshot.tensors.keys() - besides(snapshot.unpacked, snapshot.tensors)
    sizes = {name: bytes_as_floats(snapshot.tensors[name]) for name in plain}
    return sizes | {name: 4 * math.prod(weight.shape) for name, weight in snapshot.unpacked.items()}


def bytes_as_floats(info: TensorInfo) -> int:
    """Size of a tensor as a source gives it: formats of GGUF become float32."""
    return info.num_bytes if info.dtype in DTYPE_BITS else 4 * math.prod(info.shape)


class WeightReader:
    """A source read against a config: every tensor is there, has its shape, and is used."""

    def __init__(self, source: TensorSource) -> None:
        self.source = source
        self.bytes_read = 0
        self._used: set[str] = set()
        self._names = source.names()

    def has(self, name: str) -> bool:
        return name in self._names

    def read(self, name: str, *shape: int) -> Tensor:
        """A whole tensor as it is stored."""
        return self.rows(name, 0, shape[0], shape)

    def whole(self, name: str) -> Tensor:
        """A tensor whose shape the config does not say."""
        if not self.has(name) or not self.source.shape(name):
            raise CheckpointError(f"The checkpoint has no tensor '{name}'.", hint=REPEAT)
        return self.read(name, *self.source.shape(name))

    def rows(self, name: str, first: int, last: int, shape: tuple[int, ...]) -> Tensor:
        """Rows of a tensor that has this shape."""
        if name not in self._used:
            self.check(name, shape)
        found = self.source.rows(name, first, last)
        self.bytes_read += found.nbytes
        return found

    def just_read(self) -> int:
        """Bytes since this was asked the last time."""
        num_bytes, self.bytes_read = self.bytes_read, 0
        return num_bytes

    def refuse_unused(self, *, tied_head: bool) -> None:
        """Refuses a tensor that is never read: the config does not describe this model."""
        refuse_unexplained(self._names - self._used, tied_head=tied_head)

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Checks that a tensor exists and has this shape, and counts it as used."""
        check_name(name, self._names)
        check_shape(name, self.source.shape(name), shape)
        self._used.add(name)


def advise(file: int, at: int, num_bytes: int, *, soon: bool) -> None:
    """Tells the system, where it listens, that bytes of an open file are read next, or need not be kept."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, at, num_bytes, os.POSIX_FADV_WILLNEED if soon else os.POSIX_FADV_DONTNEED)


def lost(layer: int) -> EngineError:
    """EngineError for a layer whose file is gone or damaged since the model was loaded."""
    return EngineError(f"Layer {layer + 1} cannot be read from disk any more.", hint="Load the model again.")


def refuse_not_numbers(name: str, rows: Tensor) -> None:
    """CheckpointError where any of these floats is infinite or not a number."""
    if not math.isfinite(rows.sum()) and not torch.isfinite(rows).all():  # a sum says it in one reading
        raise CheckpointError(
            f"The checkpoint's '{name}' has a weight that is infinite or not a number.",
            hint="Download the model again.",
        )


def spans(rows: Mapping[str, int], first: int, last: int) -> Iterator[tuple[str, int, int]]:
    """Rows first..last - 1 of several tensors as if they were one's: of which tensor, and from where to where in it."""
    start = 0
    for name, size in rows.items():
        low, high = max(first, start) - start, min(last, start + size) - start
        if low < high:
            yield name, low, high
        start += size


def slabs(rows: int, elements: int, multiple: int, *, at_once: int | None = None) -> Iterator[tuple[int, int]]:
    """Ranges of rows of so many elements each, in multiples of `multiple`, small enough to be float32 for a while."""
    step = max((at_once or SLAB_ELEMENTS) // elements // multiple, 1) * multiple
    for first in range(0, rows, step):
        yield first, min(first + step, rows)
