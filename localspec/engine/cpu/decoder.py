"""The transformer on a CPU with int8 or int4 weights: the interface of decoder.Decoder, one compiled pass per forward.

Knows nothing about files, text or drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from localspec.engine.cpu.cache import PackedCache
from localspec.engine.cpu.model import PackedModel
from localspec.engine.cpu.sequences import SequenceRows
from localspec.engine.cpu.short_head import shortened
from localspec.engine.lengths import Shorten
from localspec.engine.passes import Pass, PassResult, alone
from localspec.engine.protocols import ExitStates
from localspec.engine.shortlist import SharedShortlist, Shortlist


class PackedDecoder:
    """A model with the cache of one sequence. Rows are appended by `forward` and forgotten by `crop`."""

    def __init__(self, model: PackedModel, *, owns_model: bool = True) -> None:
        self.model, self._owns_model = model, owns_model
        self.arch, self.weights = model.arch, model.weights
        self.cache = PackedCache(model.arch, model.context)
        self.device = torch.device("cpu")
        self.bytes_read = 0
        self.compute: Callable[[Sequence[Pass]], Sequence[PassResult]] = alone
        self._shared = SharedShortlist(self.device, partial(shortened, model.weights.head))

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
        self.model.set_threads(threads)

    def close(self) -> None:
        """Ends the threads and the offload stream; `set_threads` starts new threads. Those of a decoder that this one
        was made beside go on."""
        if self._owns_model:
            self.model.close()

    def shortlist(self, words: int, shorten: Shorten) -> Shortlist | None:
        return self._shared.shortlist(words, shorten)

    @property
    def layer_bytes(self) -> list[int]:
        """Bytes of every layer."""
        return self.model.layer_bytes

    @property
    def copied_bytes(self) -> int:
        return self._shared.num_bytes

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
        """ids [rows] through layers 0..exit_layer - 1 at `position`: states [rows, padded hidden], and the logits read
        there, of all words or of the shortlist. Keys and values are written; the counter does not move."""
        return self.compute([Pass(self, ids, position, exit_layer, short=short, early=True)])[0]

    def beside(self) -> PackedDecoder:
        """Makes another decoder of the same weights, with an empty cache of its own."""
        return PackedDecoder(self.model, owns_model=False)

    def together(self, passes: Sequence[Pass]) -> list[PassResult]:
        """Computes passes of decoders of these weights, through the same layers and with the same head, as one."""
        short = self._shared.head if passes[0].short else None
        before = self.model.bytes_read
        found = self.model.compute([rows_of(one) for one in passes], passes[0].last, short)
        for one in passes:
            one.decoder.bytes_read += self.model.bytes_read - before
        return found


def rows_of(one: Pass) -> SequenceRows:
    assert isinstance(one.decoder, PackedDecoder)
    return SequenceRows(one.decoder.cache, one.ids, one.position, one.exit_states, one.unread, keeps=one.early)
