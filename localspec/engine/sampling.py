"""Logits to probabilities to a token. One function shapes target and drafter alike, all rows at once, in float32.

float64 stays float64, for proofs. Knows nothing about drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import torch
from torch import Tensor

from localspec.core.errors import EngineError
from localspec.core.requests import SamplingOptions

GOLDEN = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1


class Sampling(SamplingOptions, frozen=True):
    """Resolved options; an option without a value changes nothing, and no temperature is 0, which is greedy. `usable`:
    ids from there on are padding and never chosen."""

    usable: int | None = None

    @property
    def is_greedy(self) -> bool:
        return not self.temperature

    @property
    def penalty(self) -> float:
        """What a token's score is divided by where it stands in the text already; 1 for none."""
        return 1.0 if self.repetition_penalty is None else self.repetition_penalty


def finite(logits: Tensor) -> Tensor:
    """The logits, or an EngineError: a NaN would reach the sampler as a token."""
    if not isfinite(float(logits.sum())):
        raise EngineError(
            "The model produced invalid numbers (NaN or infinity).",
            hint="Download the model again, or try another --quant.",
        )
    return logits


def penalise(logits: Tensor, sampling: Sampling, prefix: Sequence[int], drafted: Tensor) -> Tensor:
    """Scores after penalties and bans, never in place. logits: [rows, vocab]; the last row follows prefix + drafted,
    and each row before it one drafted token less.

    Repetition penalty: Keskar et al., arXiv 1909.05858, section 4.1.
    """
    scores = logits if logits.dtype == torch.float64 else logits.float()
    penalty = sampling.penalty
    if penalty != 1.0:
        seen = seen_tokens(scores.shape, prefix, drafted.to(scores.device))
        scores = torch.where(seen, torch.where(scores > 0, scores / penalty, scores * penalty), scores)
    if sampling.usable is not None and sampling.usable < scores.shape[-1]:
        scores = scores.clone() if scores is logits else scores
        scores[..., sampling.usable :] = -torch.inf
    return scores


def seen_tokens(shape: torch.Size, prefix: Sequence[int], drafted: Tensor) -> Tensor:
    """Mask [rows, vocab] of the tokens before each row."""
    rows, device = shape[0], drafted.device
    seen = torch.zeros(shape, dtype=torch.bool, device=device)
    seen[:, on_device(torch.tensor(prefix, dtype=torch.long), device)] = True
    row, column = torch.tril_indices(rows, len(drafted), len(drafted) - rows, device=device)
    seen[row, drafted[column]] = True
    return seen


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copies through pinned memory, so that the CPU does not wait for the GPU."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def likeliest(scores: Tensor) -> Tensor:
    """The index [rows] of the largest score of each row [rows, vocab], the first of equals."""
    if scores.device.type != "cpu":
        return scores.argmax(-1)
    known = scores.float() if scores.element_size() < 4 else scores  # numpy has no bfloat16; nothing is rounded
    return torch.from_numpy(known.numpy().argmax(-1))  # torch's takes ten times as long on a CPU


def shape(scores: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities [..., vocab] after temperature, top-k, top-p and min-p, in that order."""
    assert sampling.temperature, "greedy sampling has no probabilities"
    scores = scores / sampling.temperature
    vocab = scores.shape[-1]
    if sampling.top_k and sampling.top_k < vocab:
        kth = scores.topk(sampling.top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < kth, -torch.inf)
    probs = scores.softmax(dim=-1)
    if sampling.top_p is not None and sampling.top_p < 1:
        probs = likeliest_mass(probs, sampling.top_p)
    if sampling.min_p:
        probs = probs.masked_fill(probs < sampling.min_p * probs.amax(-1, keepdim=True), 0)
    return probs / probs.sum(-1, keepdim=True)


def likeliest_mass(probs: Tensor, mass: float) -> Tensor:
    """probs [..., vocab] with 0 outside the likeliest tokens that have this mass together, the one that passes it
    included (Holtzman et al., arXiv 1904.09751). Only tokens that can be among them are sorted."""
    columns = sortable(probs, mass)
    some = probs[..., columns]
    ordered, order = some.sort(dim=-1, descending=True, stable=True)
    outside = ordered.cumsum(-1) - ordered >= mass
    kept = torch.zeros_like(probs)
    kept[..., columns] = some.masked_fill(outside.scatter(-1, order, outside), 0)
    return kept


def sortable(probs: Tensor, mass: float) -> Tensor | slice:
    """The tokens that any row may need: all others have together at most half of what the mass leaves. On a GPU all
    of them: to count them would mean to wait."""
    if probs.device.type != "cpu":
        return slice(None)
    least = (1 - mass) / (2 * probs.shape[-1])
    return (probs > least).reshape(-1, probs.shape[-1]).any(0).nonzero().squeeze(-1)


def gumbel_noise(seed: int, position: int, vocab: int) -> Tensor:
    """Noise [vocab] that depends on the seed and the position alone, so target and drafter share it.

    argmax(log p + noise) is a sample from p (Gumbel, 1954).
    """
    generator = torch.Generator().manual_seed(mix(seed, position))
    uniform = torch.rand(vocab, generator=generator, dtype=torch.float64)
    return -torch.log(-torch.log(uniform.clamp_min(1e-300)))


def mix(seed: int, position: int) -> int:
    """A well-spread 63-bit number for (seed, position): SplitMix64's finaliser (Steele et al., OOPSLA 2014)."""
    word = (seed * GOLDEN + position + 1) * GOLDEN & WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & WORD
    return (word ^ word >> 31) >> 1
