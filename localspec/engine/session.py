"""A conversation resident in the cache: committed tokens, prefix reuse between turns, rewind, cancel.

Invariant: the target's cache holds every committed token but the last, which is pending. Knows nothing about text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from localspec.core.errors import Cancelled, ContextOverflow
from localspec.engine.limits import PREFILL_CHUNK
from localspec.engine.protocols import Drafter, Sampler, Target


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """Progress of a prompt, in tokens: `done` of `total` are read or were `cached`."""

    done: int
    total: int
    cached: int


class Session:
    """Committed tokens, with the target and the drafter kept in step. One generation at a time."""

    def __init__(self, target: Target, drafter: Drafter, *, device: str = "cpu") -> None:
        self.device = device
        self.target = target
        self.drafter = drafter
        self.tokens: list[int] = []
        self.nothing = torch.empty(0, dtype=torch.long, device=device)
        self.can_look = device == "cpu"
        self.sampler: Sampler
        self.stop_ids: frozenset[int] = frozenset()
        self.cancelled: Callable[[], bool] = lambda: False

    @property
    def pending(self) -> Tensor:
        """The committed token that the target's cache does not hold yet: [1]."""
        return torch.full((1,), self.tokens[-1], device=self.device)

    @property
    def tokens_left(self) -> int:
        """Tokens that may still be committed before the context is full."""
        return self.target.context - len(self.tokens)

    def begin(
        self, sampler: Sampler, *, stop_ids: frozenset[int] = frozenset(), cancelled: Callable[[], bool] | None = None
    ) -> None:
        """Begins a generation: its sampler, the ids that end it, and a function that says when it is cancelled."""
        self.sampler, self.stop_ids = sampler, stop_ids
        self.cancelled = cancelled or (lambda: False)

    def prefill(self, ids: Sequence[int]) -> Iterator[PromptProgress]:
        """Prefills a prompt in chunks, reusing the prefix that is cached; its last token stays pending, and the first
        round reads it."""
        if len(ids) >= self.target.context:
            raise ContextOverflow.of(len(ids), self.target.context)
        self.rewind(min(common_prefix_length(self.tokens, ids), len(ids) - 1) + 1)
        cached = self.target.length
        self.tokens = list(ids[: cached + 1])
        yield PromptProgress(cached, len(ids), cached)
        for start in range(cached, len(ids) - 1, PREFILL_CHUNK):
            self.check_cancel()
            chunk = ids[start : min(start + PREFILL_CHUNK, len(ids) - 1)]
            self.target.forward(torch.tensor(chunk), last_only=True)
            self.tokens = list(ids[: self.target.length + 1])
            yield PromptProgress(self.target.length, len(ids), cached)
        self.drafter.prefill(self)
        yield PromptProgress(len(ids), len(ids), cached)  # its time counts as the prompt's, too

    def commit(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)

    def rewind(self, length: int) -> None:
        """Keeps the first `length` committed tokens; the last of them is pending again."""
        del self.tokens[length:]
        self.roll_back()

    def roll_back(self) -> None:
        """Rolls both caches back to the committed tokens: a counter each."""
        length = max(len(self.tokens) - 1, 0)
        self.target.crop(length)
        self.drafter.crop(length)

    def ends_with(self, token: Tensor) -> bool:
        """True if a draft may end with this token. Always False on a GPU: waiting for it token by token would cost more
        than a draft that is too long."""
        return self.can_look and token.device.type == "cpu" and int(token) in self.stop_ids

    def check_cancel(self) -> None:
        """Raises Cancelled once the user has stopped the answer; called before every forward."""
        if self.cancelled():
            raise Cancelled("The answer was stopped.")


def common_prefix_length(left: Sequence[int], right: Sequence[int]) -> int:
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))
