"""A sampler that takes note of how probable each proposed token was, to the drafter and to the target.

Chooses nothing and draws nothing: the tokens are those of the sampler that it watches. For who asks, and for nobody
else: it costs a softmax for every token that is drafted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from localspec.engine.protocols import Draft, Odds, Sampler
from localspec.engine.session import Session


class Witness:
    """`odds` are those of the last round."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.odds = Odds()
        self._seen: list[Tensor] = []

    def propose(self, logits: Tensor, session: Session, drafted: Tensor) -> tuple[Tensor, Tensor | None]:
        token, q = self.sampler.propose(logits, session, drafted)
        self._seen.append(probability(logits, token))
        return token, q

    def accept(self, logits: Tensor, draft: Draft, session: Session) -> tuple[int, int]:
        found = self.sampler.accept(logits, draft, session)
        seen, self._seen = self._seen, []
        told = len(seen) == len(draft) > 0  # not by a drafter that failed half-way, or has no logits
        self.odds = Odds(
            drafter=tuple(torch.cat(seen).tolist()) if told else (None,) * len(draft),
            target=tuple(probability(logits[:-1], draft.tokens).tolist()),
        )
        return found


def probability(logits: Tensor, tokens: Tensor) -> Tensor:
    """Of each token [rows] by its row of logits [rows, vocab], as the model has it: before temperature and cuts."""
    scores = logits if logits.dtype == torch.float64 else logits.float()
    return scores.softmax(-1).gather(-1, tokens.to(logits.device).unsqueeze(-1)).squeeze(-1)
