"""LayerSkip's self-speculation: the target's first E layers draft, with all three savings. arXiv 2404.16710.

Shared weights; shared KV, written straight into the target's cache; shared computation, since the state after layer
E - 1 is handed to the verify forward. It needs no prefill, and holds no memory but a shortlist's copies.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from localspec.engine.drafters.empty import empty
from localspec.engine.lengths import Shorten, usual
from localspec.engine.protocols import Choice, Draft, ExitStates, Layered, Offer
from localspec.engine.sampling import finite
from localspec.engine.session import Session
from localspec.engine.shortlist import propose


class EarlyExitDrafter:
    """Drafts with layers 0..exit_layer - 1 of the target, its final norm and its head, shortened where it is long."""

    kind = "early-exit"

    def __init__(self, target: Layered, exit_layer: int, *, shorten: Shorten = usual) -> None:
        self.target = target
        self.exit_layer = exit_layer
        self.shortlist = target.shortlist(target.arch.vocab_size, shorten)

    def prefill(self, session: Session) -> None:
        pass  # the target's own prefill fills the shared cache

    def offers(self, session: Session, most: int) -> Sequence[Offer]:  # noqa: ARG002
        return (Offer(self.kind, most),)

    def draft(self, session: Session, choice: Choice) -> Draft:
        token, drafted, probs, states, sums = session.pending, session.nothing, [], [], []
        words = self.shortlist if self.shortlist and self.shortlist.follow(session) else None
        for position in range(choice.k):
            session.check_cancel()
            at = self.target.length + position
            state, logits = self.target.early(token, self.exit_layer, at, short=words is not None)
            token, q = propose(words, logits, session, drafted, self.target.arch.vocab_size)
            drafted = torch.cat((drafted, token))
            states.append(state)
            probs.append(q)
            sums.append(logits.sum())
            if session.ends_with(token):
                break
        if not states:
            return empty(session)
        finite(torch.stack(sums))  # once: on a GPU every read waits for it
        return Draft(drafted, stack(probs), ExitStates(self.exit_layer, torch.cat(states)), (self.kind,) * len(states))

    def crop(self, length: int) -> None:
        if self.shortlist:
            self.shortlist.crop(length)  # the target's own counter is the cache's length


def stack(probs: list[Tensor | None]) -> Tensor | None:
    """[k, vocab] of a sampled draft; None for a greedy draft."""
    sampled = [q for q in probs if q is not None]
    return torch.cat(sampled) if sampled else None
