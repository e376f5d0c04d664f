"""CUDA graphs of short forwards, so that the GPU does not wait for Python: one graph per width and KV bucket.

A replay repeats the recorded kernels on the same tensors, so all inputs (ids, positions, states) are copied into fixed
buffers. Sizes and layers are fixed in a graph's Shape. What cannot be recorded runs eagerly. Knows nothing about
drafts or text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from localspec.core.errors import first_line
from localspec.engine.arch import Arch
from localspec.engine.cache import Cache
from localspec.engine.decoder import Decoder, Span, Weights
from localspec.engine.lengths import Shorten
from localspec.engine.limits import GRAPH_ROWS, GRAPH_WIDTH, MAX_GRAPHS
from localspec.engine.linear import EightBit
from localspec.engine.memory import is_out_of_memory
from localspec.engine.passes import Pass, PassResult
from localspec.engine.protocols import ExitStates
from localspec.engine.shortlist import Shortlist

SHORTEST = 256  # positions of the first KV bucket; each next one is twice as long
TRIED = 8  # rows that are replayed as a check at the start
TOLERANCE = 0.5  # of the root mean square: rounding in 16 bits stays far below it, another token's logits far above

Replay = Callable[[], None]


class Capture(Protocol):
    """Records the work that a step does on tensors."""

    def __call__(self, step: Callable[[], None]) -> Replay:
        """Calls `step`, perhaps more than once; returns a function that replays its work without Python."""
        ...


class OnCuda:
    """Records CUDA graphs in one memory pool: they are never replayed at the same time."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, step: Callable[[], None]) -> Replay:
        now, graph = torch.cuda.current_stream(self._stream.device), torch.cuda.CUDAGraph()
        self._stream.wait_stream(now)
        try:
            with torch.cuda.stream(self._stream):  # torch.cuda.graph does not leave it where recording fails
                step()  # one-time work of libraries, such as autotuning, may be in no graph
                with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                    step()
        finally:
            now.wait_stream(self._stream)
        return graph.replay


CAPTURES: dict[str, Callable[[], Capture]] = {"cuda": OnCuda}  # by device; others do not need graphs


@dataclass(frozen=True, slots=True)
class Shape:
    """The fixed sizes of a graph. `rows` attend to positions below `end`; the first `done` start from states at `exit`.

    `last`: a prompt padded to `rows`, of which one row has logits. `early`: only the layers below `exit` run. `short`:
    logits of the shortlist alone.
    """

    rows: int
    end: int
    done: int = 0
    exit: int = 0
    last: bool = False
    early: bool = False
    short: bool = False


class Graphed(Decoder):
    """A decoder that replays short forwards as graphs. `fault`: why it cannot, once that is known."""

    def __init__(self, arch: Arch, weights: Weights, cache: Cache, capture: Capture) -> None:
        super().__init__(arch, weights, cache)
        self.capture = capture
        self.graphs: dict[Shape, Replay] = {}
        self.ids, self.positions, self.wanted = (
            torch.zeros(rows, dtype=torch.long, device=self.device) for rows in (GRAPH_ROWS, GRAPH_ROWS, 1)
        )
        self.states_in, self.states_out, self.logits_out = (
            torch.zeros(GRAPH_WIDTH, size, dtype=self.dtype, device=self.device)
            for size in (arch.hidden_size, arch.hidden_size, arch.vocab_size)
        )
        self.fault, self.is_reported = unrecordable(weights), False
        if self.fault is None:
            self._try()

    def unreported_fault(self) -> str | None:
        """The fault at the first call after it occurred; None otherwise."""
        if self.is_reported:
            return None
        self.is_reported = self.fault is not None
        return self.fault

    def close(self) -> None:
        self.graphs.clear()
        super().close()

    def shortlist(self, words: int, shorten: Shorten) -> Shortlist | None:
        known, found = self.shared.known, super().shortlist(words, shorten)
        if found is not known:  # recorded graphs read the head of another one, which is gone
            self.graphs = {shape: graph for shape, graph in self.graphs.items() if not shape.short}
        return found

    @torch.inference_mode()
    def together(self, passes: Sequence[Pass]) -> list[PassResult]:
        """Replays a pass of this decoder alone; several run eagerly."""
        one, exit = passes[0], passes[0].exit_states or ExitStates(0, self.states_in[:0])
        rows, last = len(one), one.unread > 0
        padded = 1 << (rows - 1).bit_length() if last else rows
        bucket, done, leave = self._bucket(one.position + padded), exit.states.shape[0], exit.layer
        shape = Shape(
            padded, bucket, done, one.last if one.early else leave, last=last, early=one.early, short=one.short
        )
        is_ours = len(passes) == 1 and one.decoder is self
        if not is_ours or not self._replayed(shape, one.ids, one.position, exit.states):
            return super().together(passes)
        self.bytes_read += self.bytes_through(one.last, short=one.short)
        states = self.states_out[:rows].clone() if one.early else self.states_out[:0]
        return [(states, self._logits(1 if last else rows, short=one.short))]

    def _logits(self, rows: int, *, short: bool) -> Tensor:
        words = self.shared.head.outputs if short else self.arch.vocab_size
        return self.logits_out[:rows, :words].clone()

    def _bucket(self, end: int) -> int:
        """The KV bucket: a power of two of positions that covers `end`."""
        length = SHORTEST
        while length < end:
            length *= 2
        return min(length, self.context)

    def _replayed(self, shape: Shape, ids: Tensor, position: int, states: Tensor) -> bool:
        """Replays the graph of this shape into the output buffers; False where it must run eagerly."""
        end = position + shape.rows
        self.cache.clear(end)  # a row attends to its whole bucket, and under a mask 0 x NaN would be NaN
        fits = shape.rows <= (GRAPH_ROWS if shape.last else GRAPH_WIDTH) and shape.done < min(shape.rows, GRAPH_WIDTH)
        if self.fault or not fits or end > self.context:
            return False
        self.ids[: ids.shape[0]].copy_(ids, non_blocking=True)
        self.positions[: shape.rows].copy_(self.columns[position : position + shape.rows])
        self.wanted.fill_(ids.shape[0] - 1)
        self.states_in[: shape.done].copy_(states)
        if shape not in self.graphs:
            self._record(shape)
        if self.fault:
            return False
        self.graphs[shape]()
        return True

    def _record(self, shape: Shape) -> None:
        try:
            self.graphs[shape] = self.capture(lambda: self._step(shape))
        except RuntimeError as fault:
            self.fault = "memory ran out" if is_out_of_memory(fault) else first_line(fault)
            self.graphs.clear()
        if len(self.graphs) > MAX_GRAPHS:
            del self.graphs[next(iter(self.graphs))]

    def _step(self, shape: Shape) -> None:
        """One forward from buffers to buffers. Padding rows are written after the others, where the next ones go."""
        ids, span = self.ids[: shape.rows], Span(self.cache, self.positions[: shape.rows], shape.end)
        if shape.early:
            states = self.run(self.embed(ids), 0, shape.exit, [span])
            self.states_out[: shape.rows].copy_(states)
            logits = self.head(states, short=shape.short)
        else:
            exit_states = ExitStates(shape.exit, self.states_in[: shape.done]) if shape.done else None
            states = self.through(ids, self.arch.num_layers, [span], [exit_states])
            logits = self.head(states[self.wanted] if shape.last else states, short=shape.short)
        self.logits_out[: logits.shape[0], : logits.shape[1]].copy_(logits)

    def _try(self) -> None:
        """Compares replays with an eager forward; where they differ, graphs are not used."""
        ids = torch.arange(min(TRIED, self.context)) * 37 % self.arch.vocab_size
        ((_, eager),) = super().together((Pass(self, ids, 0, self.arch.num_layers),))
        expected = eager.float()
        found = torch.cat([self.forward(row) for row in torch.split(ids, 1)]).float()
        self.crop(0)
        self.bytes_read = 0
        if not (found - expected).abs().max() <= TOLERANCE * expected.square().mean().sqrt():
            self.fault = "a replay gave other logits than the model"
            self.graphs.clear()


def unrecordable(weights: Weights) -> str | None:
    """Why forwards with these weights cannot be recorded; None if they can."""
    if weights.stream:
        return "some layers are offloaded"
    linear = weights.layers[0].qkv
    if isinstance(linear, EightBit) and linear.threshold:
        return f"LLM.int8 computes inputs beyond {linear.threshold:g} in 16 bits (--int8-threshold 0 does not)"
    return None
