"""Records how probable each drafted token was, to the drafter and to the target.

Wraps another sampler, which chooses every token. It costs a softmax for each drafted token, so it is used on request
only.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from localspec.engine.protocols import Draft, DraftProbabilities, Round, Sampler
from localspec.engine.session import Session


class RecordingSampler:
    """`probabilities`: those of the last round's draft."""

    takes_likeliest = False  # it looks at all logits

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.probabilities = DraftProbabilities()
        self._seen: list[Tensor] = []

    def propose(self, logits: Tensor, session: Session, drafted: Tensor) -> tuple[Tensor, Tensor | None]:
        token, q = self.sampler.propose(logits, session, drafted)
        self._seen.append(probability(logits, token))
        return token, q

    def accept(self, logits: Tensor, draft: Draft, session: Session) -> tuple[int, int]:
        found = self.sampler.accept(logits, draft, session)
        seen, self._seen = self._seen, []
        known = tuple(torch.cat(seen).tolist()) if 0 < len(seen) <= len(draft) else ()  # more: it failed half-way
        self.probabilities = DraftProbabilities(
            drafter=(*known, *[None] * (len(draft) - len(known))),  # looked-up tokens have none
            target=tuple(probability(logits[:-1], draft.tokens).tolist()),
        )
        return found

    def recorded(self, done: Round) -> Round:
        """The last round, with its draft's probabilities."""
        return replace(done, probabilities=self.probabilities)


def probability(logits: Tensor, tokens: Tensor) -> Tensor:
    """The probability of each token [rows] by its row of logits [rows, vocab], before temperature and cuts."""
    scores = logits if logits.dtype == torch.float64 else logits.float()
    return scores.softmax(-1).gather(-1, tokens.to(logits.device).unsqueeze(-1)).squeeze(-1)
