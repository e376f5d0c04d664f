"""Three samplers, each for target and drafter alike: greedy, rejection sampling, and seeded.

Knows nothing about models; reads the session's committed tokens for penalties and positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from localspec.engine.acceptance import accept_block, accept_matching, accept_one_hot, draw
from localspec.engine.protocols import Draft, Sampler
from localspec.engine.sampling import Sampling, gumbel_noise, likeliest, on_device, penalise, shape
from localspec.engine.session import Session


class Greedy:
    """temperature 0: the most likely token; a draft is accepted while it is the target's own choice."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling

    @property
    def takes_likeliest(self) -> bool:
        return self.sampling.penalty == 1.0

    def propose(self, logits: Tensor, session: Session, drafted: Tensor) -> tuple[Tensor, Tensor | None]:
        return likeliest(penalise(logits, self.sampling, session.tokens, drafted)), None

    def accept(self, logits: Tensor, draft: Draft, session: Session) -> tuple[int, int]:
        chosen = likeliest(penalise(logits, self.sampling, session.tokens, draft.tokens))
        accepted = int(accept_matching(chosen, draft.tokens))
        return accepted, int(chosen[accepted])


class Rejection:
    """Samples exactly the target's distribution: a sampled draft is verified as a block, a greedy one token by
    token, and the residual is sampled where it ends.

    `greedy_draft`: drafters propose their most likely token, so q is one-hot.
    """

    def __init__(
        self, sampling: Sampling, generator: torch.Generator | None = None, *, greedy_draft: bool = False
    ) -> None:
        self.sampling = sampling
        self.generator = generator
        self.greedy_draft = greedy_draft

    @property
    def takes_likeliest(self) -> bool:
        return self.greedy_draft and self.sampling.penalty == 1.0

    def propose(self, logits: Tensor, session: Session, drafted: Tensor) -> tuple[Tensor, Tensor | None]:
        scores = penalise(logits, self.sampling, session.tokens, drafted)
        if self.greedy_draft:
            return likeliest(scores), None
        q = shape(scores, self.sampling)
        return draw(q, self.generator), q

    def accept(self, logits: Tensor, draft: Draft, session: Session) -> tuple[int, int]:
        p = shape(penalise(logits, self.sampling, session.tokens, draft.tokens), self.sampling)
        if draft.probs is None:
            accepted, token = accept_one_hot(p, draft.tokens, self.generator)
        else:
            accepted, token = accept_block(p, draft.probs, draft.tokens, self.generator)
        return int(accepted), int(token)


class Seeded:
    """Samples the same text whatever the drafter, k or timing: target and drafter add the same Gumbel noise, keyed by
    seed and position, and a draft is accepted while it is the token that the target draws."""

    takes_likeliest = False  # noise is added

    def __init__(self, sampling: Sampling, seed: int) -> None:
        self.sampling = sampling
        self.seed = seed

    def propose(self, logits: Tensor, session: Session, drafted: Tensor) -> tuple[Tensor, Tensor | None]:
        scores = penalise(logits, self.sampling, session.tokens, drafted)
        return self.choose(scores, len(session.tokens) + len(drafted)), None

    def accept(self, logits: Tensor, draft: Draft, session: Session) -> tuple[int, int]:
        scores = penalise(logits, self.sampling, session.tokens, draft.tokens)
        chosen = self.choose(scores, len(session.tokens))
        accepted = int(accept_matching(chosen, draft.tokens))
        return accepted, int(chosen[accepted])

    def choose(self, scores: Tensor, position: int) -> Tensor:
        """The token of each row [rows, vocab]; row i is at position + i."""
        vocab = scores.shape[-1]
        noise = torch.stack([gumbel_noise(self.seed, position + row, vocab) for row in range(scores.shape[0])])
        return likeliest(shape(scores, self.sampling).double().log() + on_device(noise, scores.device))


def make_sampler(sampling: Sampling, *, greedy_draft: bool = False) -> Sampler:
    """Turns the options into a sampler, once for a generation."""
    if sampling.is_greedy:
        return Greedy(sampling)
    if sampling.seed is not None:
        return Seeded(sampling, sampling.seed)
    return Rejection(sampling, greedy_draft=greedy_draft)
