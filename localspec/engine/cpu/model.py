"""A packed model with its tables and threads: rows of one or several sequences through its layers, in compiled passes.

Fills the tables of `layout` once, and a job for each pass. Every row is computed by itself: a sequence's rows have the
same bits whatever others are computed with them. Keys and values are float16: keys as vectors of 16 positions, channel
by channel, values position by position. Knows nothing about files, text or drafts.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from localspec.core.errors import EngineError
from localspec.engine.arch import Arch
from localspec.engine.cpu import layout as at
from localspec.engine.cpu.formats import GROUP, padded
from localspec.engine.cpu.pack import Packed
from localspec.engine.cpu.pool import MOST_THREADS, Pool
from localspec.engine.cpu.program import Program
from localspec.engine.cpu.sequences import Layout, SequenceRows, exit_of, joined, packed, write_spans
from localspec.engine.cpu.short_head import PackedShortHead
from localspec.engine.cpu.tables import describe_linear, table
from localspec.engine.offload import LayerStream, bytes_in_memory, bytes_of_layers
from localspec.engine.passes import PassResult
from localspec.engine.protocols import ExitStates
from localspec.engine.rope import rotation_table


@dataclass(frozen=True, slots=True)
class PackedLayer:
    """One block's weights; heads padded to whole vectors, gate and up interleaved. Norms: float32, padded. `v` has the
    outputs behind those of `qk`: the values, and perhaps the last key's head."""

    attention_norm: Tensor
    qk: Packed
    v: Packed
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Packed
    mlp_norm: Tensor
    gate_up: Packed
    down: Packed

    @property
    def num_bytes(self) -> int:
        return sum(linear.num_bytes for linear in (self.qk, self.v, self.output, self.gate_up, self.down))


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """A whole model; the head may be the embedding itself. `stream` has the layers behind `layers`."""

    embedding: Packed
    layers: tuple[PackedLayer, ...]
    norm: Tensor
    head: Packed
    stream: LayerStream[PackedLayer] | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes in memory, without offloaded layers."""
        tables = self.head.num_bytes + (0 if self.head is self.embedding else self.embedding.num_bytes)
        return tables + bytes_in_memory(self.layers, self.stream)

    @property
    def layer_bytes(self) -> list[int]:
        """Bytes of every layer, resident or offloaded."""
        return bytes_of_layers(self.layers, self.stream)


class PackedModel:
    """A model resident, with its threads and without a cache."""

    def __init__(self, arch: Arch, weights: PackedWeights, context: int, program: Program, threads: int = 1) -> None:
        self.arch, self.weights, self.context, self.program = arch, weights, context, program
        self.layer_bytes = weights.layer_bytes
        self.bytes_read = 0
        self.hidden = padded(arch.hidden_size, GROUP)
        self.kept: list[Tensor] = []
        self.pool: Pool | None = None
        self._model, self._layers = table(at.MODEL_BYTES), table(at.LAYER_BYTES, arch.num_layers)
        self._brought: dict[tuple[int, int], np.ndarray] = {}
        self._job, self._read = table(at.JOB_BYTES), table(8 * at.MAX_ROWS)
        self._spans, self._late_spans = (table(2 * at.SPAN_BYTES * at.MAX_ROWS) for _ in range(2))
        self._nothing = torch.empty(0, self.hidden)
        self._describe()
        self.set_threads(threads)

    def set_threads(self, threads: int) -> None:
        """Sets how many threads run a pass together."""
        self._end_threads()
        self.threads, own = min(threads, MOST_THREADS), self._own_bytes()
        self._own = torch.zeros(self.threads * own + 64, dtype=torch.uint8)
        self._set(at.OWN, self._own.data_ptr())
        self._set(at.OWN_BYTES, own)
        self.pool = Pool(self.program, self._job, self.threads)
        self._end = weakref.finalize(self, self.pool.close)  # also without a call of `close`, before Python ends

    def close(self) -> None:
        """Ends the threads and the offload stream; `set_threads` starts new threads."""
        self._end_threads()
        if self.weights.stream:
            self.weights.stream.close()

    def _end_threads(self) -> None:
        if self.pool is not None:
            self._end()
            self.pool = None

    def compute(
        self, several: Sequence[SequenceRows], last: int, short: PackedShortHead | None = None
    ) -> list[PassResult]:
        """States, where they are wanted, and logits of each sequence's rows after layers 0..last - 1: the resident
        layers in one pass, offloaded ones one by one. Exit states are all of one layer; `short` is the head to read."""
        stream = self.weights.stream
        if stream is None or last <= stream.first:
            return self._sweep(several, last, short)
        first, states = self._resident_states(stream.first, several)
        found: list[PassResult] = []
        for layer, slot in enumerate(stream.iter_layers(first, last), first):
            self._layers[layer] = self._brought[layer, slot]
            at_hand = [replace(one, exit_states=ExitStates(layer, x)) for one, x in zip(several, states, strict=True)]
            if layer + 1 < last:
                at_hand = [one.unfinished() for one in at_hand]
            found = self._sweep(at_hand, layer + 1, short)
            states = [state for state, _ in found]
        return found

    def _resident_states(self, resident: int, several: Sequence[SequenceRows]) -> tuple[int, list[Tensor]]:
        """The layer behind the resident ones, or a later exit, and the states of all rows there."""
        leave = exit_of(several)
        if leave <= resident:
            return resident, [states for states, _ in self._sweep([one.unfinished() for one in several], resident)]
        behind = [one.behind() for one in several if one.done < len(one)]
        more = iter([states for states, _ in self.compute(behind, leave)] if behind else ())
        return leave, [joined([*one.given, *([next(more)] if one.done < len(one) else ())]) for one in several]

    def _sweep(
        self, several: Sequence[SequenceRows], last: int, short: PackedShortHead | None = None
    ) -> list[PassResult]:
        """Runs all rows through layers 0..last - 1, in passes of at most MAX_ROWS."""
        for one in several:
            self._check(one, last)
        if sum([len(one) for one in several]) <= at.MAX_ROWS:
            return self._run(several, last, short)
        found: list[list[PassResult]] = [[] for _ in several]
        for some in packed([(index, part) for index, one in enumerate(several) for part in one.parts()]):
            results = self._run([part for _, part in some], last, short)
            for (index, _), result in zip(some, results, strict=True):
                found[index].append(result)
        return [(joined([states for states, _ in some]), joined([logits for _, logits in some])) for some in found]

    def _run(self, several: Sequence[SequenceRows], last: int, short: PackedShortHead | None) -> list[PassResult]:
        """Runs one compiled pass."""
        layout, leave = Layout.of(several), exit_of(several)
        ids, done, read = layout.ids, layout.done, layout.read
        given = joined([states for one in several for states in one.given]).contiguous() if done else self._nothing
        keeps = any(one.keeps for one in several)
        states = torch.empty(layout.rows, self.hidden) if keeps else self._nothing
        logits = torch.empty(len(read), self.weights.head.outputs if short is None else short.outputs)
        self._read[: len(read)] = read
        job = {
            at.ROWS: layout.rows,
            at.DONE: done,
            at.EXIT: leave,
            at.LAST: last,
            at.NUM_SPANS: write_spans(self._spans, layout.spans),
            at.NUM_LATE_SPANS: write_spans(self._late_spans, layout.late_spans) if leave else 0,
            at.NUM_READ: len(read),
            at.IDS: ids.data_ptr(),
            at.STATES: given.data_ptr() if done else 0,
            at.STATES_OUT: states.data_ptr() if keeps else 0,
            at.LOGITS: logits.data_ptr(),
            at.READ_AT: self._model.ctypes.data + at.HEAD if short is None else short.linears.ctypes.data,
        }
        for field, value in job.items():
            self._job[field // 8] = value
        if self.pool is None:
            self.set_threads(self.threads)
        assert self.pool is not None
        self.pool.run()
        self.bytes_read += sum(self.layer_bytes[leave if done == layout.rows else 0 : last])
        if read:
            self.bytes_read += self.weights.head.num_bytes if short is None else short.bytes_read
        logits = logits[:, : self.arch.vocab_size] if short is None else logits
        if len(several) == 1:
            return [(states, logits)]
        return list(zip(layout.states(states), layout.logits(logits), strict=True))

    def _check(self, rows: SequenceRows, last: int) -> None:
        """Raises EngineError for a job out of bounds: the compiled code does not check addresses."""
        count, given = len(rows), rows.exit_states
        if not 0 <= rows.position <= self.context - count:
            raise EngineError(
                f"{count} tokens at position {rows.position} do not fit into a context of {self.context}."
            )
        first = given.layer if given else 0
        if not 0 <= first <= last <= self.arch.num_layers:
            raise EngineError(f"A model of {self.arch.num_layers} layers has none from {first} to {last}.")
        for states in rows.given:
            if states.dtype != torch.float32 or states.shape[1:] != (self.hidden,) or len(states) > count:
                raise EngineError(f"States of shape {tuple(states.shape)} are not those of {count} tokens.")
        least, most = (int(bound) for bound in rows.ids.aminmax())
        if least < 0 or most >= self.arch.vocab_size:
            raise EngineError(f"The model has no token {least if least < 0 else most}.")

    # --- tables

    def _describe(self) -> None:
        arch, wide = self.arch, padded(self.arch.head_dim, 16)
        layer = self.weights.layers[0]
        mixed = max(layer.qk.outputs + layer.v.outputs, layer.output.inputs) * 4
        context = padded(self.context, at.CHUNK)
        cos, sin = rotation_table(arch, self.context, torch.float32)
        constants = [arch.norm_eps, 1 / arch.hidden_size, 1 / arch.head_dim, 1 / math.sqrt(arch.head_dim)]
        for field, value in (
            (at.LAYERS, self._layers.ctypes.data),
            (at.HIDDEN, self.hidden),
            (at.NUM_HEADS, arch.num_heads),
            (at.NUM_KV_HEADS, arch.num_kv_heads),
            (at.HEAD_DIM, arch.head_dim),
            (at.HEAD_PADDED, wide),
            (at.CONTEXT, context),
            (at.COS, self.keep(cos)),
            (at.SIN, self.keep(sin)),
            (at.CONSTANTS, self.keep(torch.tensor(constants))),
            (at.FINAL_NORM, self.keep(self.weights.norm)),
            (at.STREAM, self._buffer(at.MAX_ROWS * self.hidden * 4)),
            (at.MIXED, self._buffer(at.MAX_ROWS * mixed)),
            (at.MIXED_STRIDE, mixed),
            (at.QUERIES, self._buffer(at.MAX_ROWS * arch.num_heads * wide * 4)),
            (at.PARTIAL, self._buffer(at.partial_bytes(arch.num_heads, wide, context))),
        ):
            self._set(field, value)
        self._describe_rows(at.NARROW, max(self.hidden, self.weights.layers[0].output.inputs))
        self._describe_rows(at.WIDE, self.weights.layers[0].down.inputs)
        describe_linear(self._model, at.EMBEDDING, self.weights.embedding)
        describe_linear(self._model, at.HEAD, self.weights.head)
        for field, addresses in (
            (at.MODEL, self._model),
            (at.SPANS, self._spans),
            (at.LATE_SPANS, self._late_spans),
            (at.READ, self._read),
        ):
            self._set(field, addresses.ctypes.data, table=self._job)
        for index, layer in enumerate(self.weights.layers):
            self._describe_layer(index, layer)
        stream = self.weights.stream
        for index in range(stream.first, stream.last) if stream else ():
            for slot, layer in enumerate(stream.slots if stream else ()):
                self._describe_layer(index, layer)
                self._brought[index, slot] = self._layers[index].copy()

    def _describe_layer(self, index: int, layer: PackedLayer) -> None:
        half = self.arch.num_kv_heads * padded(self.context, at.CHUNK) * padded(self.arch.head_dim, 16) * 2  # float16
        into = self._layers[index]
        for field, value in (
            (at.ATTENTION_NORM, self.keep(layer.attention_norm)),
            (at.Q_NORM, 0 if layer.q_norm is None else self.keep(layer.q_norm)),
            (at.K_NORM, 0 if layer.k_norm is None else self.keep(layer.k_norm)),
            (at.MLP_NORM, self.keep(layer.mlp_norm)),
            (at.KEYS, 2 * index * half),
            (at.VALUES, (2 * index + 1) * half),
            (at.WINDOW, self.arch.windows[index] or 0),
        ):
            self._set(field, value, table=into)
        for field, linear in (
            (at.QK, layer.qk),
            (at.V, layer.v),
            (at.OUTPUT, layer.output),
            (at.GATE_UP, layer.gate_up),
            (at.DOWN, layer.down),
        ):
            describe_linear(into, field, linear)
        self._set(at.QK + at.MORE, layer.v.data.shape[0], table=into)

    def _describe_rows(self, start: int, inputs: int) -> None:
        groups = inputs // GROUP
        for field, value in (
            (at.Q_BYTES, self._buffer(at.MAX_ROWS * inputs)),
            (at.Q_SCALES, self._buffer(at.MAX_ROWS * groups * 4)),
            (at.Q_CORRECTIONS, self._buffer(at.MAX_ROWS * groups * 4)),
            (at.Q_GROUPS, groups),
        ):
            self._set(start + field, value)

    def _own_bytes(self) -> int:
        tile = max(at.TILE_QUERIES, self.arch.query_group)
        return max(tile * at.CHUNK * 4, 4 * at.MAX_ROWS * 128)

    def _set(self, field: int, value: int, table: np.ndarray | None = None) -> None:
        (self._model if table is None else table)[field // 8] = value

    def keep(self, tensor: Tensor) -> int:
        """The address of a tensor, which is kept alive."""
        self.kept.append(tensor.contiguous())
        return self.kept[-1].data_ptr()

    def _buffer(self, num_bytes: int) -> int:
        """The address of a new zeroed buffer."""
        return self.keep(torch.zeros(num_bytes + 64, dtype=torch.uint8))
