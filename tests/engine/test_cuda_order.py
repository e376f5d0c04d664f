"""What a GPU may do in any order it does in no wrong one: streams and graphs on a pretended GPU, which does whatever
waits for nothing, as coins have it. A test in test_offload.py has a real one do it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import torch

from localspec.engine.cuda_graphs import OnCuda
from localspec.engine.offload import LayerStream, OnDevice

FIRST, LAST, FORWARDS = 2, 6, 3
SEEDS = 30


@dataclass(eq=False)
class Queue:
    """A stream: what it is told to do it does in order, each thing once nothing is waited for."""

    gpu: Gpu
    device: str = "cuda:0"
    waits: deque[tuple[object | None, Callable[[], object]]] = field(default_factory=deque)

    def enqueue(self, work: Callable[[], object], after: object | None = None) -> None:
        self.waits.append((after, work))

    def mark(self) -> object:
        """Passed when all before it is done."""
        mark = object()
        self.enqueue(lambda: self.gpu.passed.add(mark))
        return mark

    def wait_stream(self, other: Queue) -> None:
        self.enqueue(lambda: None, after=other.mark())

    def wait_event(self, event: Event) -> None:
        self.enqueue(lambda: None, after=event.mark)


@dataclass(eq=False)
class Event:
    gpu: Gpu
    mark: object | None = None

    def record(self) -> None:
        self.mark = self.gpu.current.mark()


class Gpu:
    """torch.cuda, as far as these two use it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed: set[object] = set()
        self.queues: list[Queue] = []
        self.recording = False
        self.main = self.current = self.queue()
        for name, fake in {
            "Stream": self.queue,
            "Event": lambda: Event(self),
            "current_stream": lambda _: self.current,
            "stream": self.on,
            "graph_pool_handle": lambda: "pool",
            "CUDAGraph": Graph,
            "graph": self.records,
        }.items():
            monkeypatch.setattr(torch.cuda, name, fake)

    def queue(self) -> Queue:
        self.queues.append(Queue(self))
        return self.queues[-1]

    @contextmanager
    def on(self, queue: Queue) -> Iterator[None]:
        before, self.current = self.current, queue
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def records(self, graph: Graph, pool: str, stream: Queue, *, capture_error_mode: str) -> Iterator[None]:
        assert (pool, stream, capture_error_mode) == ("pool", self.current, "thread_local")
        self.recording = True
        try:
            yield
        finally:
            self.recording = False
        graph.is_recorded = True

    def run(self, coins: random.Random) -> None:
        while ready := [one for one in self.queues if one.waits and one.waits[0][0] in {None, *self.passed}]:
            coins.choice(ready).waits.popleft()[1]()
        assert not any(one.waits for one in self.queues), "something waits for ever"


@dataclass
class Graph:
    is_recorded: bool = False

    def replay(self) -> None:
        assert self.is_recorded


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


def computed(gpu: Gpu, transfer: type[OnDevice], coins: random.Random) -> bool:
    """Whether every layer was computed with what had come for it, in forwards that follow each other at once."""
    slots: list[int | None] = [None, None]
    right: list[bool] = []

    def copy_in(layer: int, slot: int) -> None:
        gpu.current.enqueue(lambda: slots.__setitem__(slot, layer))

    def compute(layer: int, slot: int) -> None:
        gpu.main.enqueue(lambda: right.append(slots[slot] == layer))

    stream = LayerStream(transfer(copy_in), ["", ""], FIRST, LAST)
    for _ in range(FORWARDS):
        for layer, slot in enumerate(stream.iter_layers(FIRST, LAST), FIRST):
            compute(layer, slot)
    gpu.run(coins)
    assert len(right) == FORWARDS * (LAST - FIRST)
    return all(right)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_layer_is_there_before_it_is_computed_with_and_stays_until_then(seed: int, gpu: Gpu):
    assert computed(gpu, OnDevice, random.Random(seed))


class Overwriting(OnDevice):
    """A layer comes while what is there is still computed with."""

    def begin(self, layer: int, slot: int) -> None:
        with torch.cuda.stream(self._stream):
            self.copy_in(layer, slot)
            self._arrived[slot].record()


class Hasty(OnDevice):
    """It is said to be there before it has come."""

    def begin(self, layer: int, slot: int) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            self._arrived[slot].record()
            self.copy_in(layer, slot)


class Impatient(OnDevice):
    """Nobody waits for it."""

    def wait(self, slot: int) -> None: ...


@pytest.mark.parametrize("wrong", [Overwriting, Hasty, Impatient])
def test_a_wrong_order_would_be_seen(wrong: type[OnDevice], monkeypatch: pytest.MonkeyPatch):
    found = [computed(Gpu(monkeypatch), wrong, random.Random(seed)) for seed in range(SEEDS)]
    assert not all(found)


def test_a_graph_is_recorded_on_a_stream_of_its_own_after_one_step_that_is_in_none(gpu: Gpu):
    """All on one side of what was asked for before, and what comes after waits for it."""
    steps: list[tuple[bool, bool]] = []
    order: list[str] = []
    gpu.main.enqueue(lambda: order.append("before"))

    def step() -> None:
        steps.append((gpu.recording, gpu.current is gpu.main))
        if not gpu.recording:
            gpu.current.enqueue(lambda: order.append("step"))

    OnCuda()(step)()
    gpu.main.enqueue(lambda: order.append("after"))
    assert gpu.current is gpu.main
    gpu.run(random.Random(0))
    assert steps == [(False, False), (True, False)]
    assert order == ["before", "step", "after"]


@pytest.mark.parametrize("broken_while", ["not recording", "recording"])
def test_a_step_that_cannot_be_recorded_leaves_the_streams_as_they_were(broken_while: str, gpu: Gpu):
    def step() -> None:
        if gpu.recording == (broken_while == "recording"):
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="capturing"):
        OnCuda()(step)
    assert gpu.current is gpu.main
    assert not gpu.recording
    gpu.run(random.Random(0))
