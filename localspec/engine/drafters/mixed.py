"""A look-up in front of another drafter: both offer, one of them drafts, and looked-up tokens are grafted on the
other's draft where they agree with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from localspec.engine.drafters.table import LOOKUP
from localspec.engine.protocols import Choice, Draft, Drafter, Offer
from localspec.engine.session import Session


class Mixed:
    """Drafts with `lookup` or with `other`, as chosen; without an offer, with `other`."""

    def __init__(self, lookup: Drafter, other: Drafter) -> None:
        self.lookup = lookup
        self.other = other

    def prefill(self, session: Session) -> None:
        self.lookup.prefill(session)
        self.other.prefill(session)

    def offers(self, session: Session, most: int) -> Sequence[Offer]:
        return (*self.lookup.offers(session, most), *self.other.offers(session, most))

    def draft(self, session: Session, choice: Choice) -> Draft:
        if choice.offer is not None and choice.offer.tokens:
            return self.lookup.draft(session, choice)
        draft = self.other.draft(session, choice)
        if choice.graft is None:
            return draft
        drafted, tokens = tuple(draft.tokens.tolist()), choice.graft.tokens
        agrees = 0 < len(drafted) < len(tokens) and tokens[: len(drafted)] == drafted
        return grafted(draft, tokens[len(drafted) :]) if agrees else draft

    def crop(self, length: int) -> None:
        self.lookup.crop(length)
        self.other.crop(length)


def grafted(draft: Draft, tokens: Sequence[int]) -> Draft:
    """The draft with looked-up tokens after it; they are greedy, so where it was sampled their rows are one-hot."""
    more = torch.tensor(tokens, device=draft.tokens.device)
    probs = None if draft.probs is None else torch.cat((draft.probs, one_hot_rows(more, draft.probs)))
    drafters = (*draft.drafters, *[LOOKUP.name] * len(tokens))
    return replace(draft, tokens=torch.cat((draft.tokens, more)), probs=probs, drafters=drafters)


def one_hot_rows(tokens: Tensor, like: Tensor) -> Tensor:
    """One-hot probabilities [tokens, vocab] of the type of `like`."""
    return one_hot(tokens, like.shape[-1]).to(like.dtype)
