"""Measures a trained network on questions it has not seen: loss and greedy acceptance per exit, exact answers.

Greedy answers come from a fixed-point iteration that needs no KV cache. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from localspec.recipe.corpus import FOLLOW_UPS, Corpus
from localspec.recipe.dialogue import Turn, render, unknown_question
from localspec.recipe.network import Network
from localspec.recipe.tokenizer import TURN_END

MAX_ANSWER_TOKENS = 160  # twice the longest answer in the corpus
NUM_UNKNOWN = 40
GROUPS = ("known", "follow-up", "unknown")


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt that the model has not seen, and the answer it should give, as token ids."""

    group: str
    prompt: list[int]
    answer: list[int]


@dataclass(frozen=True, slots=True)
class ExitScore:
    """One exit on the held-out questions. Acceptance is over the full model's own greedy answers."""

    layers: int
    loss: float
    acceptance: float


@dataclass(frozen=True, slots=True)
class Report:
    """Everything measured about one training."""

    exits: tuple[ExitScore, ...]
    draft_acceptance: float
    exact: dict[str, tuple[int, int]]


def _question(group: str, turns: list[Turn], tokenizer: Tokenizer) -> Question:
    ids = render(turns, tokenizer).ids
    answer = tokenizer.encode(turns[-1].answer + TURN_END, add_special_tokens=False).ids
    end = len(ids) - 1  # render ends every turn with one newline token
    return Question(group, ids[: end - len(answer)], answer)


def held_out(corpus: Corpus, tokenizer: Tokenizer, seed: int) -> list[Question]:
    """Each entry's held-out phrasing; follow-ups on some of them; unknown topics that training never names."""
    rng, questions = Random(seed), list[Question]()
    for place, entry in enumerate(corpus.known):
        first = Turn(entry.held_out, entry.answer)
        questions.append(_question("known", [first], tokenizer))
        kind = FOLLOW_UPS[place % len(FOLLOW_UPS)]
        second = Turn(corpus.follow_ups[kind].held_out, entry.follow_up(kind))
        questions.append(_question("follow-up", [first, second], tokenizer))
    for _ in range(NUM_UNKNOWN):
        asked = unknown_question(corpus, rng, held_out=True)
        questions.append(_question("unknown", [Turn(asked, corpus.fallback)], tokenizer))
    return questions


@torch.no_grad()
def greedy(network: Network, prompt: list[int], guess: list[int], end: int) -> list[int]:
    """The greedy answer: a guess is corrected by the model's own choices until its prefix, up to end, stands still."""
    depth, answer, settled = network.shape.num_layers, guess, 0
    while settled < MAX_ANSWER_TOKENS:
        logits = network(torch.tensor([prompt + answer]), [depth])[depth]
        chosen: list[int] = logits[len(prompt) - 1 :].argmax(-1).tolist()
        settled = 1 + next((i for i, (a, b) in enumerate(zip(answer, chosen, strict=False)) if a != b), len(answer))
        answer = chosen[:MAX_ANSWER_TOKENS]
        if end in answer[:settled]:
            return answer[: answer.index(end) + 1]
    return answer


@torch.no_grad()
def _choices(network: Network, prompt: list[int], answer: list[int], exits: Sequence[int]) -> dict[int, Tensor]:
    """Logits of each exit at the positions that predict the answer."""
    logits = network(torch.tensor([prompt + answer[:-1]]), exits)
    return {depth: rows[len(prompt) - 1 :] for depth, rows in logits.items()}


def measure(target: Network, draft: Network, questions: list[Question], end: int) -> Report:
    """Runs every question once through the target's greedy decoding and every exit."""
    depths = range(1, target.shape.num_layers + 1)
    losses, agreed, drafted, positions = dict.fromkeys(depths, 0.0), dict.fromkeys(depths, 0), 0, 0
    exact = dict.fromkeys(GROUPS, (0, 0))
    for question in questions:
        answer = greedy(target, question.prompt, question.answer, end)
        right, asked = exact[question.group]
        exact[question.group] = (right + (answer == question.answer), asked + 1)
        wanted, reference = torch.tensor(answer), torch.tensor(question.answer)
        for depth, rows in _choices(target, question.prompt, answer, depths).items():
            agreed[depth] += int((rows.argmax(-1) == wanted).sum())
        for depth, rows in _choices(target, question.prompt, question.answer, depths).items():
            losses[depth] += F.cross_entropy(rows, reference).item()
        last = draft.shape.num_layers
        drafted += int((_choices(draft, question.prompt, answer, [last])[last].argmax(-1) == wanted).sum())
        positions += len(answer)
    exits = (ExitScore(depth, losses[depth] / len(questions), agreed[depth] / positions) for depth in depths)
    return Report(tuple(exits), drafted / positions, exact)
