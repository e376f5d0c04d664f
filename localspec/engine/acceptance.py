"""Acceptance of a draft: pure tensor maths over leading batch dimensions.

Knows no model and keeps no random state; the generator is passed in. Leviathan et al., arXiv 2211.17192;
Chen et al., arXiv 2302.01318.
"""

from __future__ import annotations

import torch
from torch import Tensor


def accept_matching(chosen: Tensor, drafted: Tensor) -> Tensor:
    """Length [...] of the longest prefix of drafted [..., k] that equals the target's own choices [..., k + 1]."""
    return matching_prefix(chosen[..., :-1] == drafted)


def accept_rejection(
    p: Tensor, q: Tensor | None, drafted: Tensor, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Accepted lengths [...] and the target's next token [...], whose law together is p's exactly.

    p: [..., k + 1, vocab], q: [..., k, vocab] that drafted [..., k] was sampled from, None for a greedy draft.
    """
    k, index = drafted.shape[-1], drafted.unsqueeze(-1)
    p_drafted = p[..., :k, :].gather(-1, index).squeeze(-1)
    q_drafted = torch.ones_like(p_drafted) if q is None else q.gather(-1, index).squeeze(-1)
    coin = torch.rand(p_drafted.shape, generator=generator, dtype=p.dtype, device=p.device)
    accepted = matching_prefix(coin * q_drafted < p_drafted)  # accept with probability min(1, p/q)
    row = accepted[..., None, None].expand(*accepted.shape, 1, p.shape[-1])
    p_next = p.gather(-2, row).squeeze(-2)
    q_next = torch.cat((proposal(p, q, index), torch.zeros_like(p[..., :1, :])), dim=-2).gather(-2, row).squeeze(-2)
    return accepted, draw(residual(p_next, q_next), generator)


def matching_prefix(matches: Tensor) -> Tensor:
    """The number of leading entries that are true; matches: [..., k]."""
    return matches.long().cumprod(-1).sum(-1)


def proposal(p: Tensor, q: Tensor | None, index: Tensor) -> Tensor:
    """q as probabilities [..., k, vocab]; a greedy draft is one-hot."""
    if q is not None:
        return q
    return torch.zeros_like(p[..., :-1, :]).scatter(-1, index, 1.0)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """Normalised max(0, p - q); p itself where nothing is left, as after full acceptance or when p equals q."""
    positive = (p - q).clamp_min(0)
    total = positive.sum(-1, keepdim=True)
    return torch.where(total > 0, positive / total.clamp_min(torch.finfo(p.dtype).tiny), p)


def draw(probs: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One sample [...] of each row of probs [..., vocab], by the exponential race."""
    race = torch.empty_like(probs).exponential_(generator=generator).clamp_min_(torch.finfo(probs.dtype).tiny)
    return (probs / race).argmax(-1)
