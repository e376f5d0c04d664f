"""Records how probable each committed token was to the target, and which tokens were the likeliest at its position.

Wraps another sampler, which chooses every token. It costs a softmax for each committed token, so it is used on request
only.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from localspec.engine.protocols import Draft, Logprobs, Round, Sampler
from localspec.engine.session import Session


class LogprobSampler:
    """Keeps, of the last round, each token's own log-probability and those of the `count` likeliest, before temperature
    and cuts. `usable`: ids from there on are padding."""

    def __init__(self, sampler: Sampler, count: int, usable: int) -> None:
        self.sampler, self.count, self.usable = sampler, count, usable
        self._found: list[Logprobs] = []

    @property
    def takes_likeliest(self) -> bool:
        return self.sampler.takes_likeliest

    def propose(self, logits: Tensor, session: Session, drafted: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.sampler.propose(logits, session, drafted)

    def accept(self, logits: Tensor, draft: Draft, session: Session) -> tuple[int, int]:
        accepted, token = self.sampler.accept(logits, draft, session)
        ids = [*draft.tokens[:accepted].tolist(), token]
        self._found = logprobs(logits[: accepted + 1, : self.usable], ids, self.count)
        return accepted, token

    def recorded(self, done: Round) -> Round:
        """The last round, with what was found."""
        return replace(done, logprobs=tuple(self._found[: len(done.tokens)]))


def logprobs(logits: Tensor, ids: list[int], count: int) -> list[Logprobs]:
    """The log-probability of each id by its row of logits [rows, vocab], and those of the row's `count` likeliest, the
    likeliest first."""
    scores = (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)
    own = scores.gather(-1, torch.tensor(ids, device=scores.device).unsqueeze(-1)).squeeze(-1).tolist()
    likeliest = scores.topk(min(count, scores.shape[-1]), dim=-1)
    rows = zip(ids, own, likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
    return [((id, value), *zip(others, values, strict=True)) for id, value, others, values in rows]
