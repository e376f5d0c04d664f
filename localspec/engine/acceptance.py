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


def accept_one_hot(p: Tensor, drafted: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Accepted lengths [...] and the target's next token [...], whose law together is p's exactly, of a draft without
    chance: each token is accepted with the target's probability, or another one takes its place.

    p: [..., k + 1, vocab], drafted: [..., k].
    """
    index = drafted.unsqueeze(-1)
    p_drafted = p[..., :-1, :].gather(-1, index).squeeze(-1)
    coin = torch.rand(p_drafted.shape, generator=generator, dtype=p.dtype, device=p.device)
    accepted = matching_prefix(coin < p_drafted)
    hot = torch.zeros_like(p[..., :-1, :]).scatter(-1, index, 1.0)
    return accepted, draw(residual(row(p, accepted), row(with_none(hot), accepted)), generator)


def accept_block(
    p: Tensor, q: Tensor, drafted: Tensor, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Accepted lengths [...] and the target's next token [...], whose law together is p's exactly, of a sampled draft:
    it is verified as a block, so a token that the target finds less likely is made up for by others that it finds more
    likely. On average it accepts at least as many as one by one. Sun et al., arXiv 2403.10444.

    p: [..., k + 1, vocab], q: [..., k, vocab] that drafted [..., k] was sampled from.
    """
    index, one = drafted.unsqueeze(-1), torch.ones_like(p[..., 0, 0])
    ratio = (p[..., :-1, :].gather(-1, index) / q.gather(-1, index)).squeeze(-1)
    scales = [one]  # the chance to keep the first 0, 1, … tokens, whatever follows them
    for position in range(drafted.shape[-1]):
        scales.append((scales[-1] * ratio[..., position]).clamp_max(1).nan_to_num(0.0))
    scale = torch.stack(scales, dim=-1)
    p, q = scale.unsqueeze(-1) * p, with_none(q)
    rest = (p - q).clamp_min(0).sum(-1)
    chance = (rest / (rest + 1 - scale)).nan_to_num(1.0)  # [..., k + 1]
    coin = torch.rand(ratio.shape, generator=generator, dtype=p.dtype, device=p.device)
    kept = torch.cat((one.unsqueeze(-1).bool(), coin < chance[..., 1:]), dim=-1)
    accepted = (kept * torch.arange(kept.shape[-1], device=p.device)).amax(-1)  # the longest that is kept
    return accepted, draw(residual(row(p, accepted), row(q, accepted)), generator)


def row(rows: Tensor, index: Tensor) -> Tensor:
    """Row `index` [...] of rows [..., k + 1, vocab]: [..., vocab]."""
    at = index[..., None, None].expand(*index.shape, 1, rows.shape[-1])
    return rows.gather(-2, at).squeeze(-2)


def with_none(q: Tensor) -> Tensor:
    """The rows of q [..., k, vocab], and one where nothing was proposed: [..., k + 1, vocab]."""
    return torch.cat((q, q.new_zeros(*q.shape[:-2], 1, q.shape[-1])), dim=-2)


def matching_prefix(matches: Tensor) -> Tensor:
    """The number of leading entries that are true; matches: [..., k]."""
    return matches.long().cumprod(-1).sum(-1)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """Normalised max(0, p - q); p itself where nothing is left, as after full acceptance or when p equals q."""
    positive = (p - q).clamp_min(0)
    total = positive.sum(-1, keepdim=True)
    return torch.where(total > 0, positive / total.clamp_min(torch.finfo(p.dtype).tiny), p)


def draw(probs: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One sample [...] of each row of probs [..., vocab]. On a CPU only tokens that any row may be are drawn among: the
    noise of a whole vocabulary takes longer than all else of a sampler."""
    if probs.device.type != "cpu":
        return race(probs, generator)
    tokens = (probs > 0).reshape(-1, probs.shape[-1]).any(0).nonzero().squeeze(-1)
    return tokens[race(probs[..., tokens], generator)]


def race(probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """One sample [...] of each row, by the exponential race."""
    times = torch.empty_like(probs).exponential_(generator=generator).clamp_min_(torch.finfo(probs.dtype).tiny)
    return (probs / times).argmax(-1)
