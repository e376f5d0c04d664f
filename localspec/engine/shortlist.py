"""The ids that a drafter chooses from where its head is long: the first ones, and others that were met last.

Where the tokenizer merges by rank, the first ids are the most frequent words. Ids after them are copied into slots as
they are met, the one that was not met for longest giving way, so what a text uses is soon among them. Where many tokens
are missing nevertheless, the whole head is used until they are fewer. The verifier sees all words, so no text depends
on any of this. FR-Spec: arXiv 2502.14856. Knows no weights; a ShortHead has them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar
from weakref import ref

import torch
from torch import Tensor

from localspec.engine.lengths import Lengths, Shorten
from localspec.engine.protocols import Resident, can_shorten
from localspec.engine.sampling import likeliest, on_device
from localspec.engine.session import Session

WINDOW = 256  # tokens over which the missing ones are counted
MOST_MISSING = 12  # of them, 5 %: with more, the whole head is used
FEW_MISSING = 10  # with no more, the short one again
MOST_READ = 8192  # tokens of a prompt that are looked through


class ShortHead(Protocol):
    """A head's first rows, and after them slots for copies of others."""

    @property
    def num_bytes(self) -> int:
        """Bytes of the copies."""
        ...

    @property
    def bytes_read(self) -> int:
        """Bytes that a forward reads."""
        ...

    def copy(self, slots: Tensor, ids: Tensor) -> None:
        """Copies the rows of these ids into these slots."""
        ...


class Shortlist:
    """Which of the first `words` ids a short head has, and whether it is used. `ids` [total]: the id of each of its
    logits."""

    def __init__(self, head: ShortHead, lengths: Lengths, words: int, device: torch.device) -> None:
        self.head, self.lengths, self.words = head, lengths, words
        last = range(words - lengths.slots, words)  # at the start: where control tokens are
        self.ids = torch.tensor([*range(lengths.first), *last], device=device)
        self.is_used = True
        self._slots = {token: slot for slot, token in enumerate(last)}  # the longest unmet first
        self._stale = dict(enumerate(last))  # slots whose row is not copied yet
        self._missing: deque[int] = deque()  # positions, by `_count`, of tokens that were missing
        self._count = self._read = 0

    def __contains__(self, token: int) -> bool:
        return token < self.lengths.first or token in self._slots

    def follow(self, session: Session) -> bool:
        """Reads the tokens committed since; True if the short head is to be used now."""
        tokens = session.tokens
        for token in tokens[max(self._read, len(tokens) - MOST_READ) :]:
            self.meet(token)
        self._read = len(tokens)
        self.keep(session.stop_ids)
        self._decide()
        if self.is_used and self._stale:
            self._copy()
        return self.is_used

    def crop(self, length: int) -> None:
        self._read = min(self._read, length)

    def meet(self, token: int) -> None:
        """Counts a token, and whether it was missing; then it is there."""
        self._count += 1
        if token < self.lengths.first or token >= self.words:
            return
        if token not in self._slots:
            self._missing.append(self._count)
        self._touch(token)

    def keep(self, tokens: Iterable[int]) -> None:
        """Keeps tokens in the list, met or not."""
        for token in tokens:
            if self.lengths.first <= token < self.words:
                self._touch(token)

    def _touch(self, token: int) -> None:
        """Makes a token the last one to give way."""
        slot = self._slots.pop(token, None)
        if slot is None:
            slot = self._slots.pop(next(iter(self._slots)))
            self._stale[slot] = token
        self._slots[token] = slot

    def _decide(self) -> None:
        while self._missing and self._missing[0] <= self._count - WINDOW:
            self._missing.popleft()
        self.is_used = len(self._missing) <= (MOST_MISSING if self.is_used else FEW_MISSING)

    def _copy(self) -> None:
        slots, ids = (
            on_device(torch.tensor(list(some)), self.ids.device) for some in (self._stale, self._stale.values())
        )
        self.ids[slots + self.lengths.first] = ids
        self.head.copy(slots, ids)
        self._stale.clear()

    def widened(self, logits: Tensor, vocab: int) -> Tensor:
        """The logits [rows, vocab]; words that are not on the list are never drafted."""
        found = logits.new_full((logits.shape[0], vocab), -torch.inf)
        return found.index_copy_(1, self.ids, logits)


def propose(
    words: Shortlist | None, logits: Tensor, session: Session, drafted: Tensor, vocab: int
) -> tuple[Tensor, Tensor | None]:
    """A drafter's next token as Sampler.propose, from logits of all words, or [1, total] of the shortlist. `vocab`: the
    target's."""
    if words is None:
        return session.sampler.propose(logits, session, drafted)
    if session.sampler.takes_likeliest:
        return words.ids[likeliest(logits)], None
    return session.sampler.propose(words.widened(logits, vocab), session, drafted)


def drafter_bytes(target: Resident, *own: Resident) -> int:
    """Bytes in memory for drafting: the drafter's own decoders, and what short heads have copied."""
    copied = [one.copied_bytes for one in (target, *own) if can_shorten(one)]
    return sum(copied) + sum(decoder.weights.num_bytes for decoder in own)


H = TypeVar("H", bound=ShortHead)


class SharedShortlist(Generic[H]):
    """A decoder's shortlist, which its drafters share and alone keep in memory. `cut` makes a short head, or None."""

    def __init__(self, device: torch.device, cut: Callable[[Lengths], H | None]) -> None:
        self.device, self.cut = device, cut
        self._list: ref[Shortlist] | None = None
        self._head: ref[H] | None = None

    @property
    def known(self) -> Shortlist | None:
        return self._list() if self._list else None

    @property
    def num_bytes(self) -> int:
        """Bytes of the copies that are held now."""
        known = self.known
        return known.head.num_bytes if known else 0

    @property
    def head(self) -> H:
        found = self._head() if self._head else None
        assert found is not None
        return found

    def shortlist(self, words: int, shorten: Shorten) -> Shortlist | None:
        """The shortlist in use, else a new one; None where all words are used, or the head cannot be cut."""
        lengths = shorten(words)
        if lengths is None or self.known:
            return self.known if lengths else None
        head = self.cut(lengths)
        if head is None:
            return None
        made = Shortlist(head, lengths, words, self.device)
        self._list, self._head = ref(made), ref(head)
        return made
