"""The transformer in torch: rows of ids in, rows of logits out, any range of layers, static KV.

Rows of several sequences share all but attention. Weights come ready-made from the loader; knows nothing about files,
text or drafts.
RMSNorm: arXiv 1910.07467; grouped queries: 2305.13245; gated feed-forward: 2002.05202.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from localspec.engine.arch import Arch
from localspec.engine.cache import Cache
from localspec.engine.lengths import Shorten
from localspec.engine.linear import Linear
from localspec.engine.offload import LayerStream, bytes_in_memory, bytes_of_layers
from localspec.engine.passes import Pass, PassResult, alone
from localspec.engine.protocols import ExitStates
from localspec.engine.rope import rotation_table
from localspec.engine.short_head import shortened
from localspec.engine.shortlist import SharedShortlist, Shortlist


@dataclass(frozen=True, slots=True)
class Layer:
    """One block's weights; `qkv` and `gate_up` are fused. Norm weights: [hidden], q/k norms: [head_dim] or None."""

    attention_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear

    @property
    def num_bytes(self) -> int:
        return sum(linear.num_bytes for linear in (self.qkv, self.output, self.gate_up, self.down))


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole model. embedding: [vocab, hidden]; the head may share it. `stream` has the layers after `layers`."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Linear
    stream: LayerStream[Layer] | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes in memory, without offloaded layers."""
        shared = getattr(self.head, "weight", None) is self.embedding
        tables = self.head.num_bytes + (0 if shared else self.embedding.nbytes)
        return tables + bytes_in_memory(self.layers, self.stream)

    @property
    def layer_bytes(self) -> list[int]:
        """Bytes of every layer, resident or offloaded."""
        return bytes_of_layers(self.layers, self.stream)

    def iter_layers(self, first: int, last: int) -> Iterator[Layer]:
        """Layers first..last - 1, each until the next is asked for."""
        yield from self.layers[first:last]
        if self.stream:
            for slot in self.stream.iter_layers(max(first, self.stream.first), last):
                yield self.stream.slots[slot]


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive rows of one sequence: their positions in its cache, and the end of those that they attend to.

    Positions are a slice, or a tensor [rows] whose values may change between replays: no branch may depend on them.
    """

    cache: Cache
    positions: slice | Tensor
    end: int

    @classmethod
    def at(cls, cache: Cache, position: int, rows: int) -> Span:
        return cls(cache, slice(position, position + rows), position + rows)

    def __len__(self) -> int:
        positions = self.positions
        return positions.shape[0] if isinstance(positions, Tensor) else positions.stop - positions.start

    def behind(self, done: int) -> Span:
        """The span of all rows but the first `done`."""
        if isinstance(self.positions, Tensor):
            return Span(self.cache, self.positions[done:], self.end)
        return Span(self.cache, slice(self.positions.start + done, self.positions.stop), self.end)

    def sees_all(self, window: int | None) -> bool:
        """True for what is known to be a single row that attends to every position."""
        is_single = isinstance(self.positions, slice) and self.positions.start + 1 == self.end
        return is_single and (window is None or self.end <= window)


class Decoder:
    """A model resident with its cache. Rows are appended by `forward` and forgotten by `crop`."""

    def __init__(self, arch: Arch, weights: Weights, cache: Cache) -> None:
        self.arch = arch
        self.weights = weights
        self.cache = cache
        self.compute: Callable[[Sequence[Pass]], Sequence[PassResult]] = alone
        self.bytes_read = 0  # weight bytes that forwards had to load: bandwidth use is this over time
        self.device, self.dtype = weights.norm.device, weights.norm.dtype
        wide = torch.promote_types(self.dtype, torch.float32)  # angles and norms are never computed in 16 bits
        cos, sin = rotation_table(arch, cache.context, wide)
        self.cos, self.sin = cos.to(self.device), sin.to(self.device)
        self.layer_bytes = weights.layer_bytes
        self.columns = torch.arange(cache.context, device=self.device)
        self.shared = SharedShortlist(self.device, partial(shortened, weights.head))

    @property
    def length(self) -> int:
        return self.cache.length

    @property
    def context(self) -> int:
        return self.cache.context

    def crop(self, length: int) -> None:
        self.cache.crop(length)

    def set_threads(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def close(self) -> None:
        """Ends the offload stream; torch's threads are shared and stay."""
        if self.weights.stream:
            self.weights.stream.close()

    def shortlist(self, words: int, shorten: Shorten) -> Shortlist | None:
        return self.shared.shortlist(words, shorten)

    @property
    def copied_bytes(self) -> int:
        return self.shared.num_bytes

    def forward(
        self, ids: Tensor, exit_states: ExitStates | None = None, *, last_only: bool = False, short: bool = False
    ) -> Tensor:
        """ids [rows] to logits [rows, vocab] (or [1, vocab]), appended to the cache; `short`: of the shortlist.

        `exit_states` are of the first rows: only the others run the layers below the exit.
        """
        rows, last = ids.shape[0], self.arch.num_layers
        unread = rows - 1 if last_only else 0
        [(_, logits)] = self.compute([Pass(self, ids, self.length, last, exit_states, unread, short=short)])
        self.cache.length += rows
        return logits

    def early(self, ids: Tensor, exit_layer: int, position: int, *, short: bool = False) -> tuple[Tensor, Tensor]:
        """ids [rows] through layers 0..exit_layer - 1 at `position`: states [rows, hidden], before the norm, and the
        logits read there, [rows, vocab] or of the shortlist. Keys and values are written; the counter does not move."""
        return self.compute([Pass(self, ids, position, exit_layer, short=short, early=True)])[0]

    def beside(self) -> Decoder:
        """Makes another decoder of the same weights, with an empty cache of its own."""
        cache = Cache(self.arch, self.context, dtype=self.cache.dtype, device=str(self.device))
        return Decoder(self.arch, self.weights, cache)

    @torch.inference_mode()
    def together(self, passes: Sequence[Pass]) -> list[PassResult]:
        """Computes passes of decoders of these weights, through the same layers and with the same head, as one."""
        num_bytes, short = self.bytes_through(passes[0].last, short=passes[0].short), passes[0].short
        for one in passes:
            one.decoder.bytes_read += num_bytes
        spans = [Span.at(cache_of(one), one.position, len(one)) for one in passes]
        ids, exits = torch.cat([one.ids for one in passes]), [one.exit_states for one in passes]
        states = split(self.through(ids, passes[0].last, spans, exits), [len(one) for one in passes])
        read = [rows[one.unread :] for one, rows in zip(passes, states, strict=True)]
        logits = split(self.head(torch.cat(read), short=short), [rows.shape[0] for rows in read])
        return list(zip(states, logits, strict=True))

    def through(self, ids: Tensor, last: int, spans: Sequence[Span], exits: Sequence[ExitStates | None]) -> Tensor:
        """ids [rows], sequence by sequence, to states [rows, hidden] after layers 0..last - 1. The first rows of each
        start from its exit states, which are all of one layer."""
        hidden, first = self.embed(ids), 0
        for exit in exits:
            if exit is not None:
                first = exit.layer
        if first:
            hidden = self.behind(hidden, first, spans, exits)
        return self.run(hidden, first, last, spans)

    def behind(self, hidden: Tensor, layer: int, spans: Sequence[Span], exits: Sequence[ExitStates | None]) -> Tensor:
        """The states of all rows after layers 0..layer - 1, which only those without exit states run."""
        done = [0 if exit is None else exit.states.shape[0] for exit in exits]
        late = [span.behind(rows) for span, rows in zip(spans, done, strict=True)]
        parts = split(hidden, [len(span) for span in spans])
        rest = torch.cat([part[rows:] for part, rows in zip(parts, done, strict=True)])
        found = split(self.run(rest, 0, layer, late), [len(span) for span in late])
        given = [() if exit is None else (exit.states,) for exit in exits]
        return torch.cat([rows for exit, more in zip(given, found, strict=True) for rows in (*exit, more)])

    def bytes_through(self, last: int, *, short: bool = False) -> int:
        """Bytes of the layers below `last` and of the head."""
        head = self.shared.head.bytes_read if short else self.weights.head.num_bytes
        return sum(self.layer_bytes[:last]) + head

    def embed(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids.to(self.device), self.weights.embedding).to(self.dtype)

    def run(self, hidden: Tensor, first: int, last: int, spans: Sequence[Span]) -> Tensor:
        """hidden [rows, hidden_size], sequence by sequence, through layers first..last - 1."""
        rotary = self.rotary_tables(spans)
        masks = {window: [self.mask(span, window) for span in spans] for window in set(self.arch.windows[first:last])}
        for index, layer in enumerate(self.weights.iter_layers(first, last), first):
            qkv = self.project_qkv(layer, self.norm(hidden, layer.attention_norm), rotary)
            attended = self.attention(index, qkv, spans, masks[self.arch.windows[index]])
            hidden = hidden + layer.output(attended)
            hidden = hidden + self.mlp(layer, self.norm(hidden, layer.mlp_norm))
        return hidden

    def head(self, hidden: Tensor, *, short: bool = False) -> Tensor:
        """Final norm and language-model head: [rows, vocab], or of the shortlist. Early exits share it."""
        linear = self.shared.head if short else self.weights.head
        return linear(self.norm(hidden, self.weights.norm))

    def norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        wide = hidden.to(self.cos.dtype)
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True).add_(self.arch.norm_eps))
        return (wide * scale).to(weight.dtype) * weight

    def project_qkv(self, layer: Layer, normed: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """Queries, keys and values [rows, heads + 2 * kv_heads, head_dim], rotated."""
        arch, rows = self.arch, normed.shape[0]
        qkv = layer.qkv(normed).view(rows, -1, arch.head_dim)
        if layer.q_norm is not None and layer.k_norm is not None:
            sizes = [arch.num_heads, arch.num_kv_heads, arch.num_kv_heads]
            queries, keys, values = torch.split(qkv, sizes, dim=1)
            qkv = torch.cat((self.norm(queries, layer.q_norm), self.norm(keys, layer.k_norm), values), dim=1)
        return rotate(qkv, *rotary)

    def attention(self, index: int, qkv: Tensor, spans: Sequence[Span], masks: Sequence[Tensor | None]) -> Tensor:
        """Attention [rows, heads * head_dim] of qkv, each sequence's over its own cache; keys and values are cached
        first."""
        parts = split(qkv, [len(span) for span in spans])
        return torch.cat(
            [self.attend(index, part, span, mask) for part, span, mask in zip(parts, spans, masks, strict=True)]
        )

    def attend(self, index: int, qkv: Tensor, span: Span, mask: Tensor | None) -> Tensor:
        """One sequence's rows over positions 0..end - 1 of its cache: [rows, heads * head_dim].

        The query heads of a group are folded into rows, so each key is read once for all of them.
        """
        arch, rows = self.arch, qkv.shape[0]
        span.cache.write(index, span.positions, qkv.narrow(1, arch.num_heads, 2 * arch.num_kv_heads))
        keys, values = span.cache.read(index, span.end)
        queries = qkv.narrow(1, 0, arch.num_heads)
        folded = queries.view(rows, arch.num_kv_heads, arch.query_group, arch.head_dim).transpose(0, 1)
        folded = folded.reshape(1, arch.num_kv_heads, rows * arch.query_group, arch.head_dim).to(keys.dtype)
        out = functional.scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
        out = out.view(arch.num_kv_heads, rows, arch.query_group, arch.head_dim).transpose(0, 1)
        return out.reshape(rows, -1).to(self.dtype)

    def rotary_tables(self, spans: Sequence[Span]) -> tuple[Tensor, Tensor]:
        """Cosines and sines [rows, heads + 2 * kv_heads, head_dim]: they rotate queries and keys, not values."""
        rotated, still = self.arch.num_heads + self.arch.num_kv_heads, self.arch.num_kv_heads
        cos = torch.cat([self.cos[span.positions] for span in spans]).expand(-1, rotated, -1)
        sin = torch.cat([self.sin[span.positions] for span in spans]).expand(-1, rotated, -1)
        unit = cos[:, :1].expand(-1, still, -1)
        return torch.cat((cos, torch.ones_like(unit)), dim=1), torch.cat((sin, torch.zeros_like(unit)), dim=1)

    def mask(self, span: Span, window: int | None) -> Tensor | None:
        """Additive mask [rows * query_group, span.end]; None where a row attends to every position."""
        if span.sees_all(window):
            return None
        columns, row = self.columns[: span.end], self.columns[span.positions, None]
        hidden = columns > row if window is None else (columns > row) | (columns <= row - window)
        mask = torch.zeros(hidden.shape, dtype=self.cache.dtype, device=self.device)
        return mask.masked_fill_(hidden, -math.inf).repeat_interleave(self.arch.query_group, dim=0)

    def mlp(self, layer: Layer, normed: Tensor) -> Tensor:
        gate, up = layer.gate_up(normed).chunk(2, dim=-1)
        return layer.down(functional.silu(gate) * up)


def split(rows: Tensor, lengths: Sequence[int]) -> Sequence[Tensor]:
    """The rows of each sequence."""
    return rows.split_with_sizes(lengths)


def cache_of(one: Pass) -> Cache:
    assert isinstance(one.decoder, Decoder)
    return one.decoder.cache


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of heads [rows, heads, head_dim]; cos, sin alike, the sine signed."""
    wide = heads.to(cos.dtype)
    return torch.addcmul(wide * cos, wide.roll(wide.shape[-1] // 2, dims=-1), sin).to(heads.dtype)
