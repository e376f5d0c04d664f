"""A classifier that weighs words, pairs of words and letter groups: which entry a question means.

It learns in half a minute, from the same questions as the network, and meets other wordings better than a network does
that learns them alone. So it says what scrambled questions mean, and the network learns its judgement from those. It
is no part of the model. Multinomial logistic regression on rarity-weighted counts (tf-idf).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.recipe.train import Report

WORD = re.compile(r"[a-z0-9']+|--?[a-z-]+")
GROUPS, GROUP_WEIGHT = (3, 4), 0.5  # letters in a group
RARELY = 2  # what is in fewer questions says nothing about others
EPOCHS, ROWS, RATE, SMOOTHING = 8, 512, 0.05, 0.1

Row = tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", "np.ndarray[tuple[int], np.dtype[np.float32]]"]


def features(question: str) -> dict[str, float]:
    """Its words, neighbouring pairs and letter groups, and how much each counts before rarity."""
    words = WORD.findall(question.lower())
    found = defaultdict[str, float](float)
    for word in words:
        found[word] += 1
        framed = f"^{word}$"
        for size in GROUPS:
            for start in range(len(framed) - size + 1):
                found["#" + framed[start : start + size]] += GROUP_WEIGHT
    for left, right in pairwise(words):
        found[f"{left} {right}"] += 1
    return found


class Teacher:
    """Knows for any question which of the answers 0 to count - 1 it most likely means, once it has learned."""

    def __init__(self, asked: Sequence[tuple[str, int]], count: int) -> None:
        """asked: questions, and the number of the answer to each."""
        counted = [features(question) for question, _ in asked]
        frequency = Counter(name for found in counted for name in found)
        names = sorted(name for name, times in frequency.items() if times >= RARELY)
        self.place = {name: number for number, name in enumerate(names)}
        self.rarity = {name: math.log(len(asked) / frequency[name]) for name in names}
        self.rows = [self._weighed(found) for found in counted]
        self.answers = torch.tensor([answer for _, answer in asked])
        self.table, self.bias = torch.zeros(len(names), count), torch.zeros(count)

    @property
    def steps(self) -> int:
        """How many there are to learn in."""
        return EPOCHS * -(-len(self.rows) // ROWS)

    def learn(self, seed: int, report: Report) -> None:
        """From what was asked, in an order that the seed decides."""
        optimizer = torch.optim.Adam([self.table.requires_grad_(), self.bias.requires_grad_()], lr=RATE, fused=True)
        generator = torch.Generator().manual_seed(seed)
        orders = (torch.randperm(len(self.rows), generator=generator) for _ in range(EPOCHS))
        for step, chosen in enumerate(part for order in orders for part in torch.split(order, ROWS)):
            scores = self._scores([self.rows[row] for row in chosen.tolist()])
            loss = F.cross_entropy(scores, self.answers[chosen], label_smoothing=SMOOTHING)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            report(step, loss.item())
        self.table, self.bias = self.table.detach(), self.bias.detach()

    def answer(self, question: str) -> int:
        """The number of the answer that it most likely means."""
        return int(self._scores([self._weighed(features(question))]).argmax())

    def _weighed(self, found: dict[str, float]) -> Row:
        """The numbers of the features that it knows, and their weights, of length one together."""
        known = [name for name in found if name in self.place]
        weights = np.array([(1 + math.log(1 + found[name])) * self.rarity[name] for name in known], dtype=np.float32)
        return np.array([self.place[name] for name in known], dtype=np.int64), weights / (np.linalg.norm(weights) or 1)

    def _scores(self, rows: Sequence[Row]) -> Tensor:
        """[rows, answers]."""
        places, weights = (torch.from_numpy(np.concatenate(part)) for part in zip(*rows, strict=True))
        starts = torch.tensor([0, *(len(row) for row, _ in rows[:-1])]).cumsum(0)
        return F.embedding_bag(places, self.table, starts, mode="sum", per_sample_weights=weights) + self.bias
