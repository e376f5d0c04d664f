"""A packed model with its tables and threads: rows of one or several sequences through its layers, in compiled passes.

Fills the tables of `layout` once, and a job for each pass. Every row is computed by itself: a sequence's rows have the
same bits whatever others are computed with them. Keys and values are float16: keys as vectors of 16 positions, channel
by channel, values position by position. Knows nothing about files, text or drafts.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator, Sequence
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
from localspec.engine.cpu.short_head import PackedShortHead
from localspec.engine.cpu.tables import describe_linear, table
from localspec.engine.offload import Stream, bytes_in_memory, bytes_of_layers
from localspec.engine.passes import Result
from localspec.engine.protocols import ExitStates
from localspec.engine.rope import rotation_table

VECTOR = 16  # positions: their keys lie channel by channel


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
    stream: Stream[PackedLayer] | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes in memory, without offloaded layers."""
        tables = self.head.num_bytes + (0 if self.head is self.embedding else self.embedding.num_bytes)
        return tables + bytes_in_memory(self.layers, self.stream)

    @property
    def layer_bytes(self) -> list[int]:
        """Bytes of every layer, resident or offloaded."""
        return bytes_of_layers(self.layers, self.stream)


class PackedCache:
    """Every layer's keys and values, [layers, 2, kv_heads, context, head] float16; `length` are committed."""

    def __init__(self, arch: Arch, context: int) -> None:
        self.context, self.length = context, 0
        self.padded = padded(context, at.CHUNK)
        shape = (arch.num_layers, 2, arch.num_kv_heads, self.padded, padded(arch.head_dim, 16))
        self.store = torch.zeros(shape, dtype=torch.float16)
        self.address = self.store.data_ptr()

    @property
    def num_bytes(self) -> int:
        return self.store.nbytes

    def take(self, other: PackedCache, start: int, end: int) -> None:
        """Copies positions start..end - 1 of a cache that is equal before them, and then holds `end` positions."""
        blocks = slice(start // VECTOR * VECTOR, padded(end, VECTOR))
        self.store[:, :, :, blocks].copy_(other.store[:, :, :, blocks])
        self.length = end

    def crop(self, length: int) -> None:
        self.length = min(self.length, length)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one sequence to compute: ids [rows] at `position` of its cache, the first of them from `exit_states`. All
    but the first `unread` get logits. `keeps`: the states before the head are wanted."""

    cache: PackedCache
    ids: Tensor
    position: int
    exit_states: ExitStates | None = None
    unread: int = 0
    keeps: bool = False

    def __len__(self) -> int:
        return self.ids.shape[0]

    @property
    def given(self) -> list[Tensor]:
        """The states of the exit, in a list that is empty without them."""
        return [] if self.exit_states is None else [self.exit_states.states]

    @property
    def done(self) -> int:
        """How many rows have been through the first layers."""
        return 0 if self.exit_states is None else self.exit_states.states.shape[0]

    def parts(self) -> Iterator[Rows]:
        """Splits the rows into parts of MAX_ROWS, which one pass takes."""
        if len(self) <= at.MAX_ROWS:
            yield self
            return
        for start in range(0, len(self), at.MAX_ROWS):
            ids = self.ids[start : start + at.MAX_ROWS]
            given = self.exit_states
            if given is not None:
                given = ExitStates(given.layer, given.states[start : start + at.MAX_ROWS])
            unread = min(max(self.unread - start, 0), ids.shape[0])
            yield Rows(self.cache, ids, self.position + start, given, unread, self.keeps)

    def behind(self) -> Rows:
        """The rows without exit states, as unfinished ones."""
        first = self.done
        return replace(self, ids=self.ids[first:], position=self.position + first, exit_states=None).unfinished()

    def unfinished(self) -> Rows:
        """The rows where more layers follow: states are wanted, and no logits."""
        return replace(self, unread=len(self), keeps=True)


Span = tuple[int, int, int, int]  # consecutive rows of a sequence: the first, how many, its position, its cache


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of several sequences' rows in a pass: the `done` ones from exit states come first, sequence by
    sequence, then the others. `late_spans`: those of the others, counted from the first of them; `read`: rows with
    logits, by sequence."""

    several: Sequence[Rows]
    rows: int
    done: int
    spans: list[Span]
    late_spans: list[Span]
    read: list[int]

    @classmethod
    def of(cls, several: Sequence[Rows]) -> Layout:
        done = late = sum([one.done for one in several])
        early, spans, late_spans, read = 0, list[Span](), list[Span](), list[int]()
        for one in several:
            count, first, position, cache = len(one), one.done, one.position, one.cache.address
            if early + first == late:
                spans.append((early, count, position, cache))
            else:
                if first:
                    spans.append((early, first, position, cache))
                if count > first:
                    spans.append((late, count - first, position + first, cache))
            if first < count:
                late_spans.append((late - done, count - first, position + first, cache))
            read += [early + row if row < first else late + row - first for row in range(one.unread, count)]
            early, late = early + first, late + count - first
        return cls(several, late, done, spans, late_spans, read)

    @property
    def ids(self) -> Tensor:
        """The ids of all rows, in their order."""
        if len(self.several) == 1:
            return self.several[0].ids.contiguous()
        early = [one.ids[: one.done] for one in self.several] if self.done else []
        return torch.cat([*early, *[one.ids[one.done :] for one in self.several]])

    def states(self, kept: Tensor) -> Iterator[Tensor]:
        """Each sequence's own of the kept states of all rows [rows, hidden]."""
        early, late = 0, self.done
        for one in self.several:
            first, behind = one.done, len(one) - one.done
            yield joined([kept[early : early + first], kept[late : late + behind]]) if one.keeps else kept[:0]
            early, late = early + first, late + behind

    def logits(self, found: Tensor) -> Iterator[Tensor]:
        """Each sequence's own of the logits of all rows that are read."""
        start = 0
        for one in self.several:
            end = start + len(one) - one.unread
            yield found[start:end]
            start = end


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

    def compute(self, several: Sequence[Rows], last: int, short: PackedShortHead | None = None) -> list[Result]:
        """States, where they are wanted, and logits of each sequence's rows after layers 0..last - 1: the resident
        layers in one pass, offloaded ones one by one. Exit states are all of one layer; `short` is the head to read."""
        stream = self.weights.stream
        if stream is None or last <= stream.first:
            return self._sweep(several, last, short)
        first, states = self._resident_states(stream.first, several)
        found: list[Result] = []
        for layer, slot in enumerate(stream.iter_layers(first, last), first):
            self._layers[layer] = self._brought[layer, slot]
            at_hand = [replace(one, exit_states=ExitStates(layer, x)) for one, x in zip(several, states, strict=True)]
            if layer + 1 < last:
                at_hand = [one.unfinished() for one in at_hand]
            found = self._sweep(at_hand, layer + 1, short)
            states = [state for state, _ in found]
        return found

    def _resident_states(self, resident: int, several: Sequence[Rows]) -> tuple[int, list[Tensor]]:
        """The layer behind the resident ones, or a later exit, and the states of all rows there."""
        leave = exit_of(several)
        if leave <= resident:
            return resident, [states for states, _ in self._sweep([one.unfinished() for one in several], resident)]
        behind = [one.behind() for one in several if one.done < len(one)]
        more = iter([states for states, _ in self.compute(behind, leave)] if behind else ())
        return leave, [joined([*one.given, *([next(more)] if one.done < len(one) else ())]) for one in several]

    def _sweep(self, several: Sequence[Rows], last: int, short: PackedShortHead | None = None) -> list[Result]:
        """Runs all rows through layers 0..last - 1, in passes of at most MAX_ROWS."""
        for one in several:
            self._check(one, last)
        if sum([len(one) for one in several]) <= at.MAX_ROWS:
            return self._run(several, last, short)
        found: list[list[Result]] = [[] for _ in several]
        for some in packed([(index, part) for index, one in enumerate(several) for part in one.parts()]):
            results = self._run([part for _, part in some], last, short)
            for (index, _), result in zip(some, results, strict=True):
                found[index].append(result)
        return [(joined([states for states, _ in some]), joined([logits for _, logits in some])) for some in found]

    def _run(self, several: Sequence[Rows], last: int, short: PackedShortHead | None) -> list[Result]:
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

    def _check(self, rows: Rows, last: int) -> None:
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


def exit_of(several: Sequence[Rows]) -> int:
    """The layer whose states are handed in; 0 where none are."""
    return max([one.exit_states.layer for one in several if one.exit_states is not None], default=0)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """The parts as one; nothing is copied where there is one with rows."""
    some = [part for part in parts if part.shape[0]] or list(parts[:1])
    return some[0] if len(some) == 1 else torch.cat(some)


def packed(parts: Iterable[tuple[int, Rows]]) -> Iterator[list[tuple[int, Rows]]]:
    """The parts, in their order, in passes of at most MAX_ROWS."""
    some, room = list[tuple[int, Rows]](), at.MAX_ROWS
    for index, part in parts:
        if len(part) > room:
            yield some
            some, room = [], at.MAX_ROWS
        some.append((index, part))
        room -= len(part)
    yield some


def write_spans(into: np.ndarray, spans: Sequence[Span]) -> int:
    """Writes the spans; returns how many there are."""
    fields = [field for span in spans for field in span]
    into[: len(fields)] = fields
    return len(spans)
