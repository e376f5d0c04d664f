"""The transformer on a CPU with int8 or int4 weights: the interface of decoder.Decoder, one compiled pass per call.

Fills the tables of `layout` once, and a job for each forward. Keys and values are float16: keys as vectors of 16
positions, channel by channel, values position by position. Knows nothing about files, text or drafts.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from localspec.core.errors import EngineError
from localspec.engine.arch import Arch
from localspec.engine.batch import Pass, Result, alone
from localspec.engine.cpu import layout as at
from localspec.engine.cpu.formats import GROUP, padded
from localspec.engine.cpu.pack import Packed
from localspec.engine.cpu.pool import MOST_THREADS, Pool
from localspec.engine.cpu.program import Program
from localspec.engine.cpu.short_head import shortened
from localspec.engine.cpu.tables import describe_linear, table
from localspec.engine.lengths import Shorten
from localspec.engine.offload import Stream, bytes_in_memory, bytes_of_layers
from localspec.engine.protocols import ExitStates
from localspec.engine.rope import rotation_table
from localspec.engine.shortlist import SharedShortlist, Shortlist


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


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows to compute: ids [rows] at `position`, the first of them from `exit_states`. All but the first `unread` get
    logits, `short` ones of the shortlist alone; `states_out` [rows, padded hidden] takes the states before the head."""

    ids: Tensor
    position: int
    exit_states: ExitStates | None = None
    unread: int = 0
    states_out: Tensor | None = None
    short: bool = False

    def __len__(self) -> int:
        return self.ids.shape[0]

    def parts(self) -> Iterator[Rows]:
        """Splits the rows into parts of MAX_ROWS, which one pass takes."""
        for start in range(0, len(self), at.MAX_ROWS):
            ids = self.ids[start : start + at.MAX_ROWS]
            given = self.exit_states
            if given is not None:
                states = given.states[start : start + at.MAX_ROWS]
                given = ExitStates(given.layer, states) if len(states) else None
            out = None if self.states_out is None else self.states_out[start : start + at.MAX_ROWS]
            unread = min(max(self.unread - start, 0), ids.shape[0])
            yield Rows(ids, self.position + start, given, unread, out, self.short)

    def behind(self, done: int, states_out: Tensor) -> Rows:
        """The rows behind the first `done`, without exit states and without logits."""
        ids = self.ids[done:]
        return Rows(ids, self.position + done, None, ids.shape[0], states_out)


class PackedCache:
    """Every layer's keys and values, [layers, 2, kv_heads, context, head] float16; `length` are committed."""

    def __init__(self, arch: Arch, context: int) -> None:
        self.context, self.length = context, 0
        self.padded = padded(context, at.CHUNK)
        shape = (arch.num_layers, 2, arch.num_kv_heads, self.padded, padded(arch.head_dim, 16))
        self.store = torch.zeros(shape, dtype=torch.float16)

    @property
    def num_bytes(self) -> int:
        return self.store.nbytes

    def crop(self, length: int) -> None:
        self.length = min(self.length, length)


class PackedDecoder:
    """A model resident with its cache. Rows are appended by `forward` and forgotten by `crop`."""

    def __init__(self, arch: Arch, weights: PackedWeights, context: int, program: Program, *, threads: int = 1) -> None:
        self.arch, self.weights, self.program = arch, weights, program
        self.cache = PackedCache(arch, context)
        self.device = torch.device("cpu")
        self.bytes_read = 0
        self.layer_bytes = weights.layer_bytes
        self.hidden = padded(arch.hidden_size, GROUP)
        self.compute: Callable[[Pass], Result] = alone
        self._kept: list[Tensor] = []
        self._model, self._layers = table(at.MODEL_BYTES), table(at.LAYER_BYTES, arch.num_layers)
        self._brought: dict[tuple[int, int], np.ndarray] = {}
        self._job = table(at.JOB_BYTES)
        self._pool: Pool | None = None
        self._shared = SharedShortlist(self.device, partial(shortened, weights.head))
        self._describe()
        self.set_threads(threads)

    @property
    def length(self) -> int:
        return self.cache.length

    @property
    def context(self) -> int:
        return self.cache.context

    def crop(self, length: int) -> None:
        self.cache.crop(length)

    def set_threads(self, threads: int) -> None:
        """Sets how many threads run a pass together."""
        self._end_threads()
        self.threads = threads = min(threads, MOST_THREADS)
        own = self._own_bytes()
        self._own = torch.zeros(threads * own + 64, dtype=torch.uint8)
        self._set(at.OWN, self._own.data_ptr())
        self._set(at.OWN_BYTES, own)
        self._pool = Pool(self.program, self._job, threads)
        self._end = weakref.finalize(self, self._pool.close)  # also without a call of `close`, before Python ends

    def close(self) -> None:
        """Ends the threads and the offload stream; `set_threads` starts new threads."""
        self._end_threads()
        if self.weights.stream:
            self.weights.stream.close()

    def _end_threads(self) -> None:
        if self._pool is not None:
            self._end()
            self._pool = None

    def shortlist(self, words: int, shorten: Shorten) -> Shortlist | None:
        return self._shared.shortlist(words, shorten)

    @property
    def copied_bytes(self) -> int:
        return self._shared.num_bytes

    def _head_of(self, *, short: bool) -> tuple[int, int, int]:
        """The head's address in a table, its outputs and its bytes."""
        if short:
            head = self._shared.head
            return head.linears.ctypes.data, head.outputs, head.bytes_read
        whole = self.weights.head
        return self._model.ctypes.data + at.HEAD, whole.outputs, whole.num_bytes

    def forward(
        self, ids: Tensor, exit_states: ExitStates | None = None, *, last_only: bool = False, short: bool = False
    ) -> Tensor:
        """ids [rows] to logits [rows, vocab] (or [1, vocab]), appended to the cache; `short`: of the shortlist.

        `exit_states` are of the first rows: only the others run the layers below the exit.
        """
        rows, last = ids.shape[0], self.arch.num_layers
        unread = rows - 1 if last_only else 0
        _, logits = self.compute(Pass(self, ids, self.length, last, exit_states, unread, short=short))
        self.cache.length += rows
        return logits

    def early(self, ids: Tensor, exit_layer: int, position: int, *, short: bool = False) -> tuple[Tensor, Tensor]:
        """ids [rows] through layers 0..exit_layer - 1 at `position`: states [rows, padded hidden], and the logits read
        there, of all words or of the shortlist. Keys and values are written; the counter does not move."""
        return self.compute(Pass(self, ids, position, exit_layer, short=short, early=True))

    def beside(self) -> PackedDecoder:
        """Another decoder of the same weights, with an empty cache of its own."""
        return PackedDecoder(self.arch, self.weights, self.context, self.program, threads=self.threads)

    def together(self, passes: Sequence[Pass]) -> list[Result]:
        """Computes passes of decoders of these weights, through the same layers, as one."""
        return [one.decoder._alone(one) for one in passes]  # type: ignore[attr-defined]

    def _alone(self, one: Pass) -> Result:
        states = torch.empty(len(one) if one.early else 0, self.hidden)
        rows = Rows(one.ids, one.position, one.exit_states, one.unread, states if one.early else None, short=one.short)
        return states, self._through(rows, one.last)

    def _through(self, rows: Rows, last: int) -> Tensor:
        """Logits after layers 0..last - 1: the resident ones in one pass, offloaded ones one by one."""
        stream = self.weights.stream
        if stream is None or last <= stream.first:
            return self._sweep(rows, last)
        states = torch.empty(len(rows), self.hidden) if rows.states_out is None else rows.states_out
        first = self._resident_states(stream.first, rows, states)
        for layer, slot in enumerate(stream.iter_layers(first, last), first):
            self._layers[layer] = self._brought[layer, slot]
            unread = rows.unread if layer + 1 == last else len(rows)
            at_hand = replace(rows, exit_states=ExitStates(layer, states), unread=unread, states_out=states)
            found = self._sweep(at_hand, layer + 1)
        return found

    def _resident_states(self, resident: int, rows: Rows, states: Tensor) -> int:
        """Computes the states of all rows after the resident layers, or after a later exit; returns that layer."""
        given = rows.exit_states
        if given is None or given.layer <= resident:
            self._sweep(replace(rows, unread=len(rows), states_out=states), resident)
            return resident
        done = given.states.shape[0]
        states[:done] = given.states
        if done < len(rows):
            self._through(rows.behind(done, states[done:]), given.layer)
        return given.layer

    def _sweep(self, rows: Rows, last: int) -> Tensor:
        """Runs all rows through layers 0..last - 1, part by part."""
        found = [self._run(part, last) for part in rows.parts()]
        return torch.cat(found) if len(found) > 1 else found[0]

    def _run(self, rows: Rows, last: int) -> Tensor:
        """Runs one compiled pass through layers 0..last - 1; logits of all rows but the first `unread`."""
        self._check(rows, last)
        ids, given = rows.ids.contiguous(), rows.exit_states
        leave, states = (0, None) if given is None else (given.layer, given.states.contiguous())
        done = 0 if states is None else states.shape[0]
        head, outputs, head_bytes = self._head_of(short=rows.short)
        logits = torch.empty(len(rows) - rows.unread, outputs)
        job = {
            at.ROWS: len(rows),
            at.DONE: done,
            at.EXIT: leave,
            at.LAST: last,
            at.POSITION: rows.position,
            at.HEAD_FROM: rows.unread,
            at.IDS: ids.data_ptr(),
            at.STATES: 0 if states is None else states.data_ptr(),
            at.STATES_OUT: 0 if rows.states_out is None else rows.states_out.data_ptr(),
            at.LOGITS: logits.data_ptr(),
            at.READ_AT: head,
        }
        for field, value in job.items():
            self._job[field // 8] = value
        if self._pool is None:
            self.set_threads(1)
        assert self._pool is not None
        self._pool.run()
        self.bytes_read += sum(self.layer_bytes[leave if done == len(rows) else 0 : last])
        self.bytes_read += head_bytes if len(logits) else 0
        return logits if rows.short else logits[:, : self.arch.vocab_size]

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
        for states, fewest in ((given.states if given else None, 0), (rows.states_out, count)):
            if states is not None and not (
                states.dtype == torch.float32 and states.shape[1:] == (self.hidden,) and fewest <= len(states) <= count
            ):
                raise EngineError(f"States of shape {tuple(states.shape)} are not those of {count} tokens.")
        least, most = (int(bound) for bound in rows.ids.aminmax())
        if least < 0 or most >= self.arch.vocab_size:
            raise EngineError(f"The model has no token {least if least < 0 else most}.")

    # --- tables

    def _describe(self) -> None:
        arch, wide = self.arch, padded(self.arch.head_dim, 16)
        layer = self.weights.layers[0]
        mixed = max(layer.qk.outputs + layer.v.outputs, layer.output.inputs) * 4
        context = self.cache.padded
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
            (at.COS, self._keep(cos)),
            (at.SIN, self._keep(sin)),
            (at.CONSTANTS, self._keep(torch.tensor(constants))),
            (at.FINAL_NORM, self._keep(self.weights.norm)),
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
        self._set(at.MODEL, self._model.ctypes.data, table=self._job)
        for index, layer in enumerate(self.weights.layers):
            self._describe_layer(index, layer)
        stream = self.weights.stream
        for index in range(stream.first, stream.last) if stream else ():
            for slot, layer in enumerate(stream.slots if stream else ()):
                self._describe_layer(index, layer)
                self._brought[index, slot] = self._layers[index].copy()

    def _describe_layer(self, index: int, layer: PackedLayer) -> None:
        keys, values = self.cache.store[index].unbind(0)
        into = self._layers[index]
        for field, value in (
            (at.ATTENTION_NORM, self._keep(layer.attention_norm)),
            (at.Q_NORM, 0 if layer.q_norm is None else self._keep(layer.q_norm)),
            (at.K_NORM, 0 if layer.k_norm is None else self._keep(layer.k_norm)),
            (at.MLP_NORM, self._keep(layer.mlp_norm)),
            (at.KEYS, keys.data_ptr()),
            (at.VALUES, values.data_ptr()),
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

    def _keep(self, tensor: Tensor) -> int:
        """The address of a tensor, which is kept alive."""
        self._kept.append(tensor.contiguous())
        return self._kept[-1].data_ptr()

    def _buffer(self, num_bytes: int) -> int:
        """The address of a new zeroed buffer."""
        return self._keep(torch.zeros(num_bytes + 64, dtype=torch.uint8))
