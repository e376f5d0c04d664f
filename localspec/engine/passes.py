"""One sequence's part of a forward, and the decoders that compute several sequences' parts as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeGuard

from torch import Tensor

from localspec.engine.protocols import ExitStates, Layered, Resident, Sized

PassResult = tuple[Tensor, Tensor]  # states [rows, hidden] where they were asked for, else [0, hidden]; and logits


@dataclass(frozen=True, slots=True)
class Pass:
    """One sequence's part of a forward: ids [rows] at `position` through layers 0..last - 1, the first rows from
    `exit_states`. All but the first `unread` rows get logits, `short` ones of the shortlist. `early`: states are
    wanted, and nothing is appended to the cache."""

    decoder: Batched
    ids: Tensor
    position: int
    last: int
    exit_states: ExitStates | None = None
    unread: int = 0
    short: bool = False
    early: bool = False

    def __len__(self) -> int:
        return self.ids.shape[0]

    def first(self, rows: int) -> Pass:
        """The first rows of a prompt, without logits; all of it where there are no more."""
        return self if rows >= len(self) else replace(self, ids=self.ids[:rows], unread=rows)

    def behind(self, rows: int) -> Pass:
        """The rows after the first ones."""
        return replace(self, ids=self.ids[rows:], position=self.position + rows, unread=max(self.unread - rows, 0))


class Positions(Sized, Protocol):
    """The keys and values of one sequence, by position."""

    length: int

    def take(self, other: Self, start: int, end: int) -> None:
        """Copies positions start..end - 1 of a cache that is equal before them, and then holds `end` positions."""
        ...


class Batched(Layered, Protocol):
    """A decoder that can compute its forwards together with those of others on the same weights."""

    @property
    def cache(self) -> Positions: ...

    compute: Callable[[Sequence[Pass]], Sequence[PassResult]]
    bytes_read: int

    def beside(self) -> Batched:
        """Makes another decoder of the same weights, with an empty cache of its own."""
        ...

    def together(self, passes: Sequence[Pass]) -> list[PassResult]:
        """Computes passes of decoders of these weights, through the same layers, as one."""
        ...


def can_batch(decoder: Resident) -> TypeGuard[Batched]:
    """True if the decoder can compute several sequences at once."""
    return hasattr(decoder, "together")


def alone(passes: Sequence[Pass]) -> Sequence[PassResult]:
    """Computes these passes as one, without those of others."""
    return passes[0].decoder.together(passes)
