"""Beam search: several texts grow at once, one row of each in every forward, and the likeliest wins.

A text's score is the mean of its tokens' log-probabilities; the search ends when `beams` texts have ended and none that
goes on is better than all of them. That is transformers' search with length_penalty 1 and early_stopping off, step by
step. Beams that go on from the same text copy the keys and values in which they differ. Tokens in, tokens out.
Graves, arXiv 1211.3711; the mean: Wu et al., arXiv 1609.08144, section 7, with alpha 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from localspec.engine.passes import Batched, Pass
from localspec.engine.protocols import Round
from localspec.engine.sampling import Sampling, finite, penalise
from localspec.engine.session import Session, common_prefix_length


@dataclass(frozen=True, slots=True)
class Beam:
    """A text after the prompt, the sum of its tokens' log-probabilities, and the index of the beam it goes on from."""

    tokens: tuple[int, ...] = ()
    score: float = 0.0
    parent: int = 0

    @property
    def mean(self) -> float:
        return self.score / len(self.tokens)


class BeamSearch:
    """The beams after each step: those that `run`, the best first, and the best that have `ended`."""

    def __init__(self, beams: int, ends: frozenset[int], most: int) -> None:
        self.beams, self.ends, self.most = beams, ends, most
        self.running: list[Beam] = [Beam()]
        self.ended: list[Beam] = []

    def step(self, log_probs: Tensor) -> None:
        """Chooses among all next tokens of the running beams. log_probs: [running, vocab].

        There are as many candidates as leave `beams` that run on, whichever end; only the best of all may end.
        """
        candidates = self._best(log_probs, self.beams * max(2, 1 + len(self.ends)))
        ending = [beam for beam in candidates[: self.beams] if self._ends(beam)]
        self.ended = sorted([*self.ended, *ending], key=lambda beam: beam.mean, reverse=True)[: self.beams]
        self.running = [beam for beam in candidates if not self._ends(beam)][: self.beams]

    @property
    def is_over(self) -> bool:
        if not self.running:
            return True
        return len(self.ended) == self.beams and self.running[0].mean <= self.ended[-1].mean

    @property
    def decided(self) -> tuple[int, ...]:
        """The winner; before, the tokens with which every text begins that may yet win."""
        texts = [beam.tokens for beam in (self.ended[:1] if self.is_over else [*self.running, *self.ended])]
        return reduce(lambda left, right: left[: common_prefix_length(left, right)], texts)

    def _best(self, log_probs: Tensor, count: int) -> list[Beam]:
        scores = log_probs + log_probs.new_tensor([beam.score for beam in self.running])[:, None]
        best = scores.flatten().topk(min(count, scores.numel()))
        parts = [divmod(index, scores.shape[1]) for index in best.indices.tolist()]
        return [
            Beam((*self.running[parent].tokens, token), score, parent)
            for (parent, token), score in zip(parts, best.values.tolist(), strict=True)
        ]

    def _ends(self, beam: Beam) -> bool:
        return beam.tokens[-1] in self.ends or len(beam.tokens) == self.most


class BeamCaches:
    """The target's weights with a cache for each beam: the first ones hold the running beams' texts, in their order."""

    def __init__(self, target: Batched, count: int) -> None:
        self.target, self.prompt = target, target.length
        self.decoders = [target.beside() for _ in range(count)]
        self.texts: list[tuple[int, ...]] = [()] * count
        for decoder in self.decoders:
            decoder.cache.take(target.cache, 0, self.prompt)

    def forward(self, ids: Sequence[int], texts: Sequence[tuple[int, ...]]) -> Tensor:
        """One row for each of the first views, in one forward, which those of other answers may share: logits
        [ids, vocab]. Each then holds its text."""
        rows, last = self.decoders[: len(ids)], self.target.arch.num_layers
        before = rows[0].bytes_read
        found = self.target.compute(
            [Pass(view, torch.tensor([id]), view.length, last) for view, id in zip(rows, ids, strict=True)]
        )
        self.target.bytes_read += rows[0].bytes_read - before
        for view in rows:
            view.cache.length += 1
        self.texts[: len(texts)] = texts
        return torch.cat([logits for _, logits in found])

    def go_on(self, parents: Sequence[int]) -> None:
        """Puts the views in order: each goes on from the text of its parent, whose first child keeps its cache."""
        free = [index for index in range(len(self.decoders)) if index not in parents]
        order: list[int] = []
        for parent in parents:
            order.append(parent if parent not in order else self._copy(parent, free.pop()))
        self.decoders = [self.decoders[index] for index in (*order, *free)]
        self.texts = [self.texts[index] for index in (*order, *free)]

    def hand_over(self, tokens: Sequence[int]) -> None:
        """Gives the target what a view has of this text, so that a prompt that begins with it is not read again."""
        held, best = max((self._common(index, tokens), index) for index in range(len(self.decoders)))
        self.target.cache.take(self.decoders[best].cache, self.prompt, min(held, self.prompt + len(tokens)))

    def _copy(self, parent: int, index: int) -> int:
        source, text = self.decoders[parent], self.texts[parent]
        self.decoders[index].cache.take(source.cache, self._common(index, text), source.length)
        self.texts[index] = text
        return index

    def _common(self, index: int, tokens: Sequence[int]) -> int:
        """Positions of the view that the text has, too; the prompt's last token is the first that was forwarded."""
        equal = self.prompt + 1 + common_prefix_length(self.texts[index], tokens)
        return min(equal, self.decoders[index].length)


def beam_search(
    session: Session, target: Batched, sampling: Sampling, *, beams: int, max_tokens: int
) -> Iterator[Round]:
    """Yields a round for every forward, with the tokens that it decided, often none, until the search is over or the
    context is full. Of the sampling options the penalty counts."""
    prompt, most = list(session.tokens), min(max_tokens, session.tokens_left)
    search, views = BeamSearch(beams, session.stop_ids, most), BeamCaches(target, beams)
    try:
        while not search.is_over:
            session.check_cancel()
            started = perf_counter()
            texts = [beam.tokens for beam in search.running]
            views.go_on([beam.parent for beam in search.running])
            logits = finite(views.forward([(*prompt, *text)[-1] for text in texts], texts))
            search.step(log_probabilities(logits, sampling, [(*prompt, *text) for text in texts]))
            tokens = search.decided[len(session.tokens) - len(prompt) :]
            session.commit(tokens)
            yield Round(tokens, (), 0, 0.0, perf_counter() - started, ended=why_over(search, max_tokens))
    finally:
        views.hand_over(session.tokens[len(prompt) :])


def log_probabilities(logits: Tensor, sampling: Sampling, texts: Sequence[Sequence[int]]) -> Tensor:
    """Log-probabilities [rows, vocab] of each text's next token, penalised as transformers does: after the softmax."""
    known = logits.float().log_softmax(-1)
    nothing = torch.empty(0, dtype=torch.long, device=logits.device)
    return torch.cat([penalise(row[None], sampling, text, nothing) for row, text in zip(known, texts, strict=True)])


def why_over(search: BeamSearch, max_tokens: int) -> Literal["stop", "length", "context"] | None:
    if not search.is_over:
        return None
    if search.ended[0].tokens[-1] in search.ends:
        return "stop"
    return "length" if search.most == max_tokens else "context"
