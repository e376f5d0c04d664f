"""Measures a trained network on questions it has not seen: loss and acceptance per exit, right answers, the exam.

Greedy answers come from a fixed-point iteration that needs no KV cache. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, cycle
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from training.corpus import FOLLOW_UPS, Corpus
from training.dialogue import Turn, opening, render, unknown_question
from training.exam.grading import is_good, is_nonsense
from training.exam.questions import Exam
from training.network import Network
from training.tasks import held_out_task
from training.tokenizer import TURN_END, control_ids
from training.tones import TONES

MAX_ANSWER_TOKENS = 280  # longer than any answer in the corpus
DECIDED_TOKENS = 12
TAIL = 4  # tokens by which an answer that began otherwise is found again in a known one
ROWS = 32  # questions at a time
NUM_UNKNOWN, NUM_TASKS, NUM_TONES = 60, 40, 40
FOLLOW_UP_EVERY, SCORED = 5, 300  # entries that a follow-up is asked about; questions that exits are measured on
GROUPS = ("known", "follow-up", "unknown", "task", "tone")

Scores = dict[str, tuple[int, int]]
"""Right and asked, for each group of questions."""
NONSENSE = "nonsense"  # instead of right: how many of a newcomer's questions get such an answer
Same = Callable[[list[int], list[int]], bool]


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
    exact: Scores
    begun: Scores
    exam: Scores = field(default_factory=dict)


def _question(group: str, turns: list[Turn], tokenizer: Tokenizer, system: str = "") -> Question:
    ids = render(turns, tokenizer, system).ids
    answer = tokenizer.encode(turns[-1].answer + TURN_END, add_special_tokens=False).ids
    end = len(ids) - 1  # render ends every turn with one newline token
    return Question(group, ids[: end - len(answer)], answer)


def held_out(corpus: Corpus, tokenizer: Tokenizer, seed: int) -> list[Question]:
    """Each entry's held-out phrasing; follow-ups on some of them, and tones; unknown topics that training never names;
    tasks."""
    rng, questions = Random(seed), list[Question]()
    for place, entry in enumerate(corpus.known):
        first = Turn(entry.held_out, entry.answer)
        questions.append(_question("known", [first], tokenizer))
        if place % FOLLOW_UP_EVERY:
            continue
        kind = FOLLOW_UPS[place // FOLLOW_UP_EVERY % len(FOLLOW_UPS)]
        second = Turn(corpus.follow_ups[kind].held_out, entry.follow_up(kind))
        questions.append(_question("follow-up", [first, second], tokenizer))
    for _ in range(NUM_UNKNOWN):
        asked = unknown_question(corpus, rng, held_out=True)
        questions.append(_question("unknown", [Turn(asked, corpus.fallback)], tokenizer))
    questions += [_question("task", [Turn(*held_out_task(rng))], tokenizer) for _ in range(NUM_TASKS)]
    for entry, tone in zip(rng.sample(corpus.known, min(NUM_TONES, len(corpus.known))), cycle(TONES), strict=False):
        turn = Turn(entry.held_out, tone.apply(entry.answer))
        questions.append(_question("tone", [turn], tokenizer, tone.held_out))
    return questions


def _padded(rows: Sequence[list[int]]) -> Tensor:
    length = max(map(len, rows))
    return torch.tensor([row + [0] * (length - len(row)) for row in rows])


@torch.no_grad()
def _next_choices(network: Network, prompts: Sequence[list[int]], answers: Sequence[list[int]]) -> list[list[int]]:
    """The full model's choice after each prompt and after every token of its answer."""
    ids, depth = _padded([p + a for p, a in zip(prompts, answers, strict=True)]), network.shape.num_layers
    wanted = torch.zeros_like(ids, dtype=torch.bool)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        wanted[row, len(prompt) - 1 : len(prompt) + len(answer)] = True
    chosen = network(ids, [depth], wanted)[depth].argmax(-1).tolist()
    sizes = [len(answer) + 1 for answer in answers]
    return [chosen[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


class Known:
    """The answers that are learned by heart, and where in them a few tokens occur."""

    def __init__(self, answers: Sequence[list[int]]) -> None:
        self.answers = answers
        self.places = {
            tuple(answer[at - TAIL : at]): (answer, at) for answer in answers for at in range(TAIL, len(answer))
        }

    def guess(self, said: list[int]) -> list[int]:
        """How the answer may go on: as one that begins so, or else after its last tokens in any."""
        begun = next((answer for answer in self.answers if answer[: len(said)] == said), None)
        answer, at = self.places.get(tuple(said[-TAIL:]), (said, len(said)))
        return said + answer[at:] if begun is None else begun


def _settle(prompts: Sequence[list[int]], known: Known, network: Network, end: int) -> list[list[int]]:
    guesses, answers = [list[int]() for _ in prompts], dict[int, list[int]]()
    while len(answers) < len(prompts):
        open_ = [row for row in range(len(prompts)) if row not in answers]
        choices = _next_choices(network, [prompts[row] for row in open_], [guesses[row] for row in open_])
        for row, chosen in zip(open_, choices, strict=True):
            guess = guesses[row]
            agreed = next(
                (i for i, pair in enumerate(zip(guess, chosen, strict=False)) if pair[0] != pair[1]), len(guess)
            )
            said = chosen[: agreed + 1]
            if end in said or len(said) >= MAX_ANSWER_TOKENS:
                answers[row] = said[: said.index(end) + 1] if end in said else said[:MAX_ANSWER_TOKENS]
            guesses[row] = known.guess(said)
    return [answers[row] for row in range(len(prompts))]


def greedy(network: Network, prompts: Sequence[list[int]], known: Sequence[list[int]], end: int) -> list[list[int]]:
    """The greedy answers, up to end: a guess from what is known is corrected until the model's own choices agree."""
    order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
    answers, by_heart = [list[int]()] * len(prompts), Known(known)
    for start in range(0, len(order), ROWS):
        rows = order[start : start + ROWS]
        for row, answer in zip(rows, _settle([prompts[row] for row in rows], by_heart, network, end), strict=True):
            answers[row] = answer
    return answers


@torch.no_grad()
def _choices(network: Network, prompt: list[int], answer: list[int], exits: Sequence[int]) -> dict[int, Tensor]:
    """Logits of each exit at the positions that predict the answer."""
    logits = network(torch.tensor([prompt + answer[:-1]]), exits)
    return {depth: rows[len(prompt) - 1 :] for depth, rows in logits.items()}


def _agreement(
    network: Network, questions: Sequence[Question], answers: Sequence[list[int]], depths: Sequence[int]
) -> dict[int, float]:
    """The share of positions of the answers at which each exit's first choice is what was answered."""
    agreed = dict.fromkeys(depths, 0)
    for question, answer in zip(questions, answers, strict=True):
        for depth, rows in _choices(network, question.prompt, answer, depths).items():
            agreed[depth] += int((rows.argmax(-1) == torch.tensor(answer)).sum())
    return {depth: count / sum(map(len, answers)) for depth, count in agreed.items()}


def _losses(network: Network, questions: Sequence[Question], depths: Sequence[int]) -> dict[int, float]:
    """Each exit's loss on the written answers."""
    losses = dict.fromkeys(depths, 0.0)
    for question in questions:
        for depth, rows in _choices(network, question.prompt, question.answer, depths).items():
            losses[depth] += F.cross_entropy(rows, torch.tensor(question.answer)).item() / len(questions)
    return losses


def is_right_entry(answer: list[int], wanted: list[int]) -> bool:
    """The beginnings agree, and with them the choice of what to say."""
    return answer[:DECIDED_TOKENS] == wanted[:DECIDED_TOKENS]


def _by_group(questions: Sequence[Question], answers: Sequence[list[int]], same: Same) -> Scores:
    scores = dict.fromkeys(GROUPS, (0, 0))
    for question, answer in zip(questions, answers, strict=True):
        right, asked = scores[question.group]
        scores[question.group] = (right + same(answer, question.answer), asked + 1)
    return scores


def sit_exam(network: Network, tokenizer: Tokenizer, known: Sequence[list[int]], exam: Exam) -> Scores:
    """The exam's questions asked once each, every phrasing, and graded by its own rules; a newcomer's for nonsense too.
    What a question follows is asked before it, and answered by the network itself."""
    end, scores = control_ids(tokenizer)[TURN_END], Scores()

    def answer(prompts: Sequence[str]) -> list[str]:
        ids = [tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in prompts]
        answers = greedy(network, ids, known, end)
        return [tokenizer.decode(said[:-1] if said[-1] == end else said) for said in answers]

    first = [opening(earlier) for earlier in exam.earlier]
    begun = {
        earlier: f"{prompt}{said}{TURN_END}\n"
        for earlier, prompt, said in zip(exam.earlier, first, answer(first), strict=True)
    }
    for group, questions in exam.groups.items():
        asked = [(phrasing, question) for question in questions for phrasing in question.phrasings]
        answers = answer([begun.get(question.earlier, "") + opening(phrasing) for phrasing, question in asked])
        graded = [(said, question) for said, (_, question) in zip(answers, asked, strict=True)]
        scores[group] = (sum(is_good(*one) for one in graded), len(graded))
        if group == "newcomer":
            scores[NONSENSE] = (sum(is_nonsense(*one) for one in graded), len(graded))
    return scores


def measure(target: Network, draft: Network, questions: list[Question], known: Sequence[list[int]], end: int) -> Report:
    """Every question's greedy answer, how each exit would have drafted it, and how often it is the written one."""
    depths = range(1, target.shape.num_layers + 1)
    answers = greedy(target, [question.prompt for question in questions], known, end)
    every = -(-len(questions) // SCORED)
    some, said = questions[::every], answers[::every]
    losses, agreement = _losses(target, some, depths), _agreement(target, some, said, depths)
    exits = tuple(ExitScore(depth, losses[depth], agreement[depth]) for depth in depths)
    last = draft.shape.num_layers
    drafted = _agreement(draft, some, said, [last])[last]
    exact = _by_group(questions, answers, lambda answer, wanted: answer == wanted)
    return Report(exits, drafted, exact, _by_group(questions, answers, is_right_entry))


def known_answers(corpus: Corpus, tokenizer: Tokenizer) -> list[list[int]]:
    """Every answer that is learned by heart, as tokens up to the end of the turn."""
    entries = [text for entry in corpus.known for text in (entry.answer, *map(entry.follow_up, FOLLOW_UPS))]
    texts = dict.fromkeys([corpus.fallback, *entries])
    return [tokenizer.encode(text + TURN_END, add_special_tokens=False).ids for text in texts]
