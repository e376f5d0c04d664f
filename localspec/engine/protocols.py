"""The interfaces between the decode loop, drafters and decoders: Protocols and the records they exchange.

Token ids only. Tensors stay on the target's device; nothing here computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol, TypeGuard

import torch
from torch import Tensor

from localspec.core.events import Origin
from localspec.engine.arch import Arch

if TYPE_CHECKING:
    from localspec.engine.lengths import Shorten
    from localspec.engine.session import Session
    from localspec.engine.shortlist import Shortlist


@dataclass(frozen=True, slots=True)
class ExitStates:
    """The residual stream after `layer` layers, before any norm, of the first rows of a forward: [rows, hidden].

    Those rows' keys and values below `layer` are in the target's cache already.
    """

    layer: int
    states: Tensor


@dataclass(frozen=True, slots=True)
class Offer:
    """What one drafter could propose in the next round, and what is known of it beforehand.

    `drafter`: its kind, a row of DRAFTERS; `most`: how many tokens at most. `tokens`: those that cost nothing to
    propose, () where they cost forwards. `bucket`: a small number that says how far they can be trusted, of a
    look-up its match length and votes; `origin`: where they were copied from.
    """

    drafter: str
    most: int
    tokens: tuple[int, ...] = ()
    bucket: int = 0
    origin: Origin | None = None

    def first(self, count: int) -> Offer:
        """The offer with its first tokens alone."""
        return replace(self, most=min(self.most, count), tokens=self.tokens[:count])


@dataclass(frozen=True, slots=True)
class Choice:
    """Which offer is drafted in the next round, and how many tokens of it; without an offer, whatever there is.

    `graft`: what a look-up offers; where its tokens begin with the k drafted ones, the rest of them follow in the
    draft.
    """

    k: int = 0
    offer: Offer | None = None
    graft: Offer | None = None

    @property
    def most(self) -> int:
        """Tokens of the draft, at most."""
        return self.k if self.graft is None else max(self.k, len(self.graft.tokens))


PLAIN = Choice()


@dataclass(frozen=True, slots=True)
class Draft:
    """k proposed tokens [k]; `probs` [k, vocab] they were sampled from; None for a greedy draft.

    `exit_states` lets the verify forward start where an early-exit drafter stopped. `drafters`: the kind of drafter
    that proposed each token.
    """

    tokens: Tensor
    probs: Tensor | None = None
    exit_states: ExitStates | None = None
    drafters: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def brought_to(self, device: str) -> Draft:
        """The draft, moved from the drafter's device to the target's."""
        return replace(self, tokens=self.tokens.to(device), probs=None if self.probs is None else self.probs.to(device))


@dataclass(frozen=True, slots=True)
class DraftProbabilities:
    """Each drafted token's probability to the drafter and to the target; None where the drafter has no logits."""

    drafter: tuple[float | None, ...] = ()
    target: tuple[float | None, ...] = ()


Logprobs = tuple[tuple[int, float], ...]
"""Ids with their log-probabilities at one token's position: its own first, then the likeliest."""


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a round: `tokens` were committed, the first `accepted` of them drafted.

    `draft`: the proposed tokens, and `drafters` the kind of each; the last `ignored` of them are after the end of the
    answer, never tested. `choice`: what the policy asked for. `ended`: why the generation stops here, if it does.
    `seconds` cover the whole round. `probabilities` are the draft's and `logprobs` the tokens', if they were asked for.
    """

    tokens: tuple[int, ...]
    draft: tuple[int, ...]
    accepted: int
    draft_seconds: float
    verify_seconds: float
    ignored: int = 0
    ended: Literal["stop", "length", "context"] | None = None
    probabilities: DraftProbabilities | None = None
    drafters: tuple[str, ...] = ()
    choice: Choice = PLAIN
    logprobs: tuple[Logprobs, ...] = ()

    @property
    def seconds(self) -> float:
        return self.draft_seconds + self.verify_seconds

    @property
    def drafted(self) -> int:
        return len(self.draft)

    @property
    def copied(self) -> Offer | None:
        """The look-up's offer that tokens of the draft are copied from: the one that was drafted, or what was grafted
        on another's; None where none is."""
        offer = self.choice.offer
        if offer is None or not self.draft:
            return None
        if offer.tokens:
            return offer
        return self.choice.graft if self.drafters and self.drafters[-1] != offer.drafter else None


class Target(Protocol):
    """A decoder with its cache: rows of ids in, rows of logits out."""

    @property
    def arch(self) -> Sizes: ...

    @property
    def length(self) -> int:
        """Positions in the cache."""
        ...

    @property
    def context(self) -> int:
        """Positions the cache can hold."""
        ...

    def forward(self, ids: Tensor, exit_states: ExitStates | None = None, *, last_only: bool = False) -> Tensor:
        """ids [rows] appended to the cache; logits [rows, vocab], or [1, vocab] of the last row."""
        ...

    def crop(self, length: int) -> None:
        """Rolls back to `length` positions."""
        ...


class Sized(Protocol):
    """Anything with a size in bytes: weights, a layer, a cache."""

    @property
    def num_bytes(self) -> int: ...


class Sizes(Protocol):
    """The sizes in every configuration."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def num_layers(self) -> int: ...

    @property
    def max_context(self) -> int: ...


class Resident(Target, Protocol):
    """A target with its weights in memory: any decoder of a loaded model."""

    @property
    def weights(self) -> Sized: ...

    @property
    def cache(self) -> Sized: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def bytes_read(self) -> int:
        """Weight bytes that forwards had to load."""
        ...

    def close(self) -> None:
        """Ends its own threads, if any; may be called twice."""
        ...

    def set_threads(self, threads: int) -> None:
        """Sets how many threads compute a forward."""
        ...


class ShortHeadDecoder(Resident, Protocol):
    """A decoder that can read the logits of some words alone: the torch decoder and the CPU engine's."""

    @property
    def copied_bytes(self) -> int:
        """Bytes that the shortlist has copied of the head."""
        ...

    def shortlist(self, words: int, shorten: Shorten) -> Shortlist | None:
        """Which of the first `words` ids `short` logits are of: the list in use already, if there is one. None where
        all are used."""
        ...

    def forward(
        self, ids: Tensor, exit_states: ExitStates | None = None, *, last_only: bool = False, short: bool = False
    ) -> Tensor:
        """Computes as a Target does; `short`: logits of the shortlist alone."""
        ...


class Layered(ShortHeadDecoder, Protocol):
    """A target whose first layers can be run alone: the torch decoder and the CPU engine's."""

    @property
    def arch(self) -> Arch: ...

    def early(self, ids: Tensor, exit_layer: int, position: int, *, short: bool = False) -> tuple[Tensor, Tensor]:
        """ids [rows] through layers 0..exit_layer - 1 at `position`: their states, and the logits read there, of all
        words or of the shortlist. Keys and values are written; the counter does not move."""
        ...


def can_shorten(decoder: Resident) -> TypeGuard[ShortHeadDecoder]:
    """True if the decoder can read the logits of some words alone."""
    return hasattr(decoder, "shortlist")


def is_layered(target: Resident) -> TypeGuard[Layered]:
    """True if the target's first layers can be run alone."""
    return hasattr(target, "early")


class Drafter(Protocol):
    """Proposes tokens cheaply, and keeps in step with the session."""

    def prefill(self, session: Session) -> None:
        """Prefills the session's prompt, if the drafter needs to."""
        ...

    def offers(self, session: Session, most: int) -> Sequence[Offer]:
        """What it could propose now, at most `most` tokens each; none where it has nothing."""
        ...

    def draft(self, session: Session, choice: Choice) -> Draft:
        """Proposes at most choice.k tokens to follow the session's, and what is grafted on them."""
        ...

    def crop(self, length: int) -> None:
        """Rolls back to `length` positions."""
        ...


class Translator(Protocol):
    """Translates between the target's tokens and those of a drafter with another tokenizer, along one conversation."""

    @property
    def end_ids(self) -> frozenset[int]:
        """The drafter's tokens that end its turn."""
        ...

    def is_able(self, tokens: Sequence[int]) -> bool:
        """Whether anything can be drafted after `tokens`."""
        ...

    def follow(self, tokens: Sequence[int]) -> list[int]:
        """The drafter's ids of the conversation, which is `tokens` to the target; none where nothing can be drafted."""
        ...

    def steps(self, most: int) -> int:
        """How many tokens the drafter writes to propose so many."""
        ...

    def translate(self, tokens: Sequence[int], drafted: Sequence[int], most: int) -> list[int]:
        """The target's ids, at most so many, of what the drafter wrote after `tokens`."""
        ...

    def crop(self, length: int) -> None:
        """Forgets the target's tokens from `length` on."""
        ...


class Sampler(Protocol):
    """Chooses tokens, in the same way for target and drafter."""

    @property
    def takes_likeliest(self) -> bool:
        """True if a drafter's next token is the likeliest one, and its logits are not changed before."""
        ...

    def propose(self, logits: Tensor, session: Session, drafted: Tensor) -> tuple[Tensor, Tensor | None]:
        """A drafter's next token [1] from its logits [1, vocab], after `drafted`; and the probabilities [1, vocab]
        it was sampled from; None for a greedy draft."""
        ...

    def accept(self, logits: Tensor, draft: Draft, session: Session) -> tuple[int, int]:
        """The number of accepted draft tokens, and the target's own next token, from its logits [k + 1, vocab]."""
        ...


@dataclass(frozen=True, slots=True)
class Forward:
    """A whole forward of several sequences: its rows, of all of them; `is_mixed`: some were a prompt's."""

    rows: int
    seconds: float
    is_mixed: bool = False


class Company(Protocol):
    """What a sequence sees of those whose rows are computed together with its own."""

    @property
    def others(self) -> int:
        """Rows that others have in the next forward: those they ask for already, or one each."""
        ...

    @property
    def is_reading(self) -> bool:
        """Whether another's prompt is being read: every row then costs its full time, and someone waits."""
        ...

    @property
    def last(self) -> Forward | None:
        """The last forward, the same object to all whose rows it had; None where each is computed alone."""
        ...


class Policy(Protocol):
    """Chooses what is drafted and how much of it, and learns from the round that it led to."""

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        """Chooses at most `most` tokens of one of the offers; asking for them costs a look-up's scan."""
        ...

    def observe(self, done: Round) -> None: ...
