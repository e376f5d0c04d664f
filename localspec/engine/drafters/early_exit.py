"""LayerSkip's self-speculation: the target's first E layers draft, with all three savings. arXiv 2404.16710.

Shared weights; shared KV, written straight into the target's cache; shared computation, since the state after layer
E - 1 is handed to the verify forward. Owns no memory and needs no prefill.
"""

from __future__ import annotations

import torch
from torch import Tensor

from localspec.engine.drafters.none import empty
from localspec.engine.protocols import Draft, ExitStates, Layered
from localspec.engine.sampling import finite
from localspec.engine.session import Session


class EarlyExit:
    """Drafts with layers 0..exit_layer - 1 of the target, its final norm and its head."""

    def __init__(self, target: Layered, exit_layer: int) -> None:
        self.target = target
        self.exit_layer = exit_layer

    def prefill(self, session: Session) -> None:
        pass  # the target's own prefill filled the shared cache

    def draft(self, session: Session, k: int) -> Draft:
        token, drafted, probs, states, sums = session.pending, session.nothing, [], [], []
        for place in range(k):
            session.check_cancel()
            state, logits = self.target.early(token, self.exit_layer, self.target.length + place)
            token, q = session.sampler.propose(logits, session, drafted)
            drafted = torch.cat((drafted, token))
            states.append(state)
            probs.append(q)
            sums.append(logits.sum())
            if session.ends_with(token):
                break
        if not states:
            return empty(session)
        finite(torch.stack(sums))  # once: on a GPU every look waits for it
        return Draft(drafted, stack(probs), ExitStates(self.exit_layer, torch.cat(states)))

    def crop(self, length: int) -> None:
        pass  # the target's own counter


def stack(probs: list[Tensor | None]) -> Tensor | None:
    """[k, vocab] where the drafts were sampled; None where they were certain."""
    sampled = [q for q in probs if q is not None]
    return torch.cat(sampled) if sampled else None
