"""Rows of one or several sequences, and their positions in a compiled pass. Knows nothing about weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from localspec.engine.cpu import layout as at
from localspec.engine.cpu.cache import PackedCache
from localspec.engine.protocols import ExitStates


@dataclass(frozen=True, slots=True)
class SequenceRows:
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

    def parts(self) -> Iterator[SequenceRows]:
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
            yield SequenceRows(self.cache, ids, self.position + start, given, unread, self.keeps)

    def behind(self) -> SequenceRows:
        """The rows without exit states, as unfinished ones."""
        first = self.done
        return replace(self, ids=self.ids[first:], position=self.position + first, exit_states=None).unfinished()

    def unfinished(self) -> SequenceRows:
        """The rows where more layers follow: states are wanted, and no logits."""
        return replace(self, unread=len(self), keeps=True)


Span = tuple[int, int, int, int]  # consecutive rows of a sequence: the first, how many, its position, its cache


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of several sequences' rows in a pass: the `done` ones from exit states come first, sequence by
    sequence, then the others. `late_spans`: those of the others, counted from the first of them; `read`: rows with
    logits, by sequence."""

    several: Sequence[SequenceRows]
    rows: int
    done: int
    spans: list[Span]
    late_spans: list[Span]
    read: list[int]

    @classmethod
    def of(cls, several: Sequence[SequenceRows]) -> Layout:
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


def exit_of(several: Sequence[SequenceRows]) -> int:
    """The layer whose states are handed in; 0 where none are."""
    return max([one.exit_states.layer for one in several if one.exit_states is not None], default=0)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """The parts as one; nothing is copied where there is one with rows."""
    some = [part for part in parts if part.shape[0]] or list(parts[:1])
    return some[0] if len(some) == 1 else torch.cat(some)


def packed(parts: Iterable[tuple[int, SequenceRows]]) -> Iterator[list[tuple[int, SequenceRows]]]:
    """The parts, in their order, in passes of at most MAX_ROWS."""
    some, left = list[tuple[int, SequenceRows]](), at.MAX_ROWS
    for index, part in parts:
        if len(part) > left:
            yield some
            some, left = [], at.MAX_ROWS
        some.append((index, part))
        left -= len(part)
    yield some


def write_spans(into: np.ndarray, spans: Sequence[Span]) -> int:
    """Writes the spans; returns how many there are."""
    fields = [field for span in spans for field in span]
    into[: len(fields)] = fields
    return len(spans)
