"""Layer offloading: double-buffered streaming of weights from disk or host memory, once in every forward.

Layers are computed with in a few slots: while one is in use, the next is copied into another. The first layers follow
the last one, so they are in their slots when the resident layers have drafted. Knows nothing about what a layer is made
of, and where it lives: `copy_in` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from localspec.engine.protocols import Sized

L = TypeVar("L")
CopyIn = Callable[[int, int], None]
"""(layer, slot): copies the layer's weights into the slot."""


class LayerTransfer(Protocol):
    """Copies layers into slots, in the order they are begun."""

    def begin(self, layer: int, slot: int) -> None:
        """Returns at once. All work with the layer now in the slot has been submitted already."""
        ...

    def wait(self, slot: int) -> None:
        """Work submitted from now on finds the layer that this slot was begun with."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


class OnThread:
    """Reads ahead on a thread while others compute: a disk's or a CPU's transfer."""

    def __init__(self, copy_in: CopyIn) -> None:
        self.copy_in = copy_in
        self._thread = ThreadPoolExecutor(1, "layers")
        self._begun: dict[int, Future[None]] = {}

    def begin(self, layer: int, slot: int) -> None:
        self._begun[slot] = self._thread.submit(self.copy_in, layer, slot)

    def wait(self, slot: int) -> None:
        self._begun[slot].result()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)


class OnDevice:
    """Copies from pinned memory on a CUDA stream of its own while the device computes; the host never waits."""

    def __init__(self, copy_in: CopyIn) -> None:
        """`copy_in` starts copies and does not wait for them."""
        self.copy_in = copy_in
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._arrived: defaultdict[int, torch.cuda.Event] = defaultdict(torch.cuda.Event)

    def begin(self, layer: int, slot: int) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))  # its old layer is still in use
        with torch.cuda.stream(self._stream):
            self.copy_in(layer, slot)
            self._arrived[slot].record()

    def wait(self, slot: int) -> None:
        torch.cuda.current_stream(self._stream.device).wait_event(self._arrived[slot])

    def close(self) -> None:
        self._stream.synchronize()


class LayerStream(Generic[L]):
    """Offloaded layers first..last - 1 of a model. `slots` are layers too, whose contents change."""

    def __init__(self, transfer: LayerTransfer, slots: Sequence[L], first: int, last: int) -> None:
        self.transfer, self.slots = transfer, slots
        self.first, self.last = first, last
        self._in_slot: list[int | None] = [None] * len(slots)

    def iter_layers(self, first: int, last: int) -> Iterator[int]:
        """The slot of each of the layers first..last - 1, in order; valid until the next is asked for."""
        for layer in range(first, last):
            slot = self._take(layer)
            yield slot
            self._begin(self._after(layer, len(self.slots)), slot)

    def close(self) -> None:
        self.transfer.close()

    def _take(self, layer: int) -> int:
        if layer not in self._in_slot:
            for slot in range(len(self.slots)):
                self._begin(self._after(layer, slot), slot)
        slot = self._in_slot.index(layer)
        self._in_slot[slot] = None  # until it is begun again: the caller may stop, or the transfer fail
        self.transfer.wait(slot)
        return slot

    def _begin(self, layer: int, slot: int) -> None:
        self._in_slot[slot] = layer
        self.transfer.begin(layer, slot)

    def _after(self, layer: int, steps: int) -> int:
        """The layer so many steps later, in a circle: the last is followed by the first, of the next forward."""
        return self.first + (layer - self.first + steps) % (self.last - self.first)


def copying(far: Sequence[Sequence[Tensor]], slots: Sequence[Sequence[Tensor]], first: int) -> CopyIn:
    """Copies from memory: `far` has the tensors of layers first, first + 1, …, and `slots` those of one layer each."""

    def copy_in(layer: int, slot: int) -> None:
        for source, target in zip(far[layer - first], slots[slot], strict=True):
            target.copy_(source, non_blocking=True)

    return copy_in


S = TypeVar("S", bound=Sized)


def bytes_of_layers(resident: Sequence[S], stream: LayerStream[S] | None) -> list[int]:
    """Sizes of all layers, resident or offloaded."""
    streamed = [stream.slots[0].num_bytes] * (stream.last - stream.first) if stream else []
    return [layer.num_bytes for layer in resident] + streamed


def bytes_in_memory(resident: Sequence[S], stream: LayerStream[S] | None) -> int:
    """Size of the resident layers and the slots."""
    return sum(layer.num_bytes for layer in (*resident, *(stream.slots if stream else ())))
