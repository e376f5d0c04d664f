"""Layers that live on disk or in host memory, and come to where they are computed with once in every forward.

They are computed with in a few places: while one layer is in use, the next is on its way into another. After the last
layer come the first ones again, so they are there when the resident layers have drafted. Knows nothing about what a
layer is made of, and where it lives: `fill` does.
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
Fill = Callable[[int, int], None]
"""(layer, place): brings the layer's weights into the place."""


class Transfer(Protocol):
    """Brings layers to places, in the order in which it is told to."""

    def begin(self, layer: int, place: int) -> None:
        """Returns at once. What was to be computed with the layer that is there has been asked for already."""
        ...

    def wait(self, place: int) -> None:
        """What is computed from now on finds the layer that this place was begun with."""
        ...

    def close(self) -> None:
        """Twice does no harm."""
        ...


class OnThread:
    """A thread reads what is to come while others compute: a disk's or a CPU's transfer."""

    def __init__(self, fill: Fill) -> None:
        self.fill = fill
        self._thread = ThreadPoolExecutor(1, "layers")
        self._begun: dict[int, Future[None]] = {}

    def begin(self, layer: int, place: int) -> None:
        self._begun[place] = self._thread.submit(self.fill, layer, place)

    def wait(self, place: int) -> None:
        self._begun[place].result()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)


class OnDevice:
    """A CUDA stream of its own copies from pinned memory while the device computes; nobody waits on the host."""

    def __init__(self, fill: Fill) -> None:
        """`fill` starts copies and does not wait for them."""
        self.fill = fill
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._arrived: defaultdict[int, torch.cuda.Event] = defaultdict(torch.cuda.Event)

    def begin(self, layer: int, place: int) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))  # what is there is still computed with
        with torch.cuda.stream(self._stream):
            self.fill(layer, place)
            self._arrived[place].record()

    def wait(self, place: int) -> None:
        torch.cuda.current_stream(self._stream.device).wait_event(self._arrived[place])

    def close(self) -> None:
        self._stream.synchronize()


class Stream(Generic[L]):
    """The layers first..last - 1 of a model. `places` are layers too: what is in them changes."""

    def __init__(self, transfer: Transfer, places: Sequence[L], first: int, last: int) -> None:
        self.transfer, self.places = transfer, places
        self.first, self.last = first, last
        self._coming: list[int | None] = [None] * len(places)

    def passing(self, first: int, last: int) -> Iterator[int]:
        """Where each of the layers first..last - 1 is, in their order, until the next is asked for."""
        for layer in range(first, last):
            place = self._take(layer)
            yield place
            self._begin(self._after(layer, len(self.places)), place)

    def close(self) -> None:
        self.transfer.close()

    def _take(self, layer: int) -> int:
        if layer not in self._coming:
            for place in range(len(self.places)):
                self._begin(self._after(layer, place), place)
        place = self._coming.index(layer)
        self._coming[place] = None  # until it is begun again: whoever asked may give up, or the transfer fail
        self.transfer.wait(place)
        return place

    def _begin(self, layer: int, place: int) -> None:
        self._coming[place] = layer
        self.transfer.begin(layer, place)

    def _after(self, layer: int, steps: int) -> int:
        """In a circle: behind the last layer comes the first one, of the next forward."""
        return self.first + (layer - self.first + steps) % (self.last - self.first)


def copying(far: Sequence[Sequence[Tensor]], places: Sequence[Sequence[Tensor]], first: int) -> Fill:
    """From memory: `far` has the tensors of the layers first, first + 1, …, and `places` room for those of one each."""

    def fill(layer: int, place: int) -> None:
        for source, target in zip(far[layer - first], places[place], strict=True):
            target.copy_(source, non_blocking=True)

    return fill


S = TypeVar("S", bound=Sized)


def bytes_of_layers(resident: Sequence[S], stream: Stream[S] | None) -> list[int]:
    """Of every layer, wherever it is."""
    streamed = [stream.places[0].num_bytes] * (stream.last - stream.first) if stream else []
    return [layer.num_bytes for layer in resident] + streamed


def bytes_in_memory(resident: Sequence[S], stream: Stream[S] | None) -> int:
    """Of the resident layers and the places."""
    return sum(layer.num_bytes for layer in (*resident, *(stream.places if stream else ())))
