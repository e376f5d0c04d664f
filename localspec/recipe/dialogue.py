"""Conversations from the corpus, and batches of them: known questions, follow-ups, small talk and the unknown.

Renders exactly what the chat template renders. Only the assistant's tokens are to be learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import torch
from tokenizers import Tokenizer

from localspec.recipe.corpus import FOLLOW_UPS, NO_SUBJECT, Corpus, Entry, section
from localspec.recipe.tokenizer import TURN_END, TURN_START
from localspec.recipe.train import Batch
from localspec.recipe.vary import invented_word, vary

TURNS = (1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 7)
LONG_TURNS, LONG_SHARE = 14, 0.02  # a few long ones, so that a long chat stays on known ground
SYSTEM_SHARE, UNKNOWN_SHARE, FOLLOW_UP_SHARE = 0.2, 0.2, 0.2
NO_SUBJECT_SHARE = 0.03
POOL = 96  # conversations sorted by length at a time, so that padding stays small
HELD_OUT_TOPICS = 12


@dataclass(frozen=True, slots=True)
class Turn:
    """One question, its answer, and the entry that a follow-up would be about."""

    question: str
    answer: str
    about: Entry | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One rendered conversation."""

    ids: list[int]
    learn: list[bool]


def opening(question: str, system: str = "") -> str:
    """The text before an answer."""
    before = f"{TURN_START}system\n{system}{TURN_END}\n" if system else ""
    return f"{before}{TURN_START}user\n{question}{TURN_END}\n{TURN_START}assistant\n"


def render(turns: list[Turn], tokenizer: Tokenizer, system: str = "") -> Sample:
    """Token ids of the conversation; answers and their end of turn are to be learned."""
    ids, learn = list[int](), list[bool]()
    for turn in turns:
        parts = ((opening(turn.question, system), False), (turn.answer + TURN_END, True), ("\n", False))
        system = ""
        for text, learned in parts:
            encoded = tokenizer.encode(text, add_special_tokens=False).ids
            ids += encoded
            learn += [learned] * len(encoded)
    return Sample(ids, learn)


def unknown_question(corpus: Corpus, rng: Random, held_out: bool = False) -> str:
    """A question outside the corpus: written whole, built from a topic, or about an invented word."""
    topics = section(corpus.unknown, "topics").phrasings
    questions = section(corpus.unknown, "questions").phrasings
    cut = slice(-HELD_OUT_TOPICS, None) if held_out else slice(None, -HELD_OUT_TOPICS)
    if rng.random() < 0.3:
        return rng.choice(questions[cut])
    template = rng.choice(section(corpus.unknown, "templates").phrasings)
    topic = invented_word(rng) if rng.random() < 0.2 else rng.choice(topics[cut])
    return template.replace("{}", topic)


class Author:
    """Writes conversations without end; the seed decides them all."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, seed: int) -> None:
        self.corpus, self.tokenizer, self.rng = corpus, tokenizer, Random(seed)

    def turn(self, about: Entry | None) -> Turn:
        """The next turn of a conversation whose subject so far is about."""
        roll = self.rng.random()
        if roll < (FOLLOW_UP_SHARE if about else NO_SUBJECT_SHARE):
            kind = self.rng.choice(FOLLOW_UPS)
            question = self.rng.choice(self.corpus.follow_ups[kind].trained)
            return Turn(vary(question, self.rng), about.follow_up(kind) if about else NO_SUBJECT, about)
        if roll > 1 - UNKNOWN_SHARE:
            return Turn(vary(unknown_question(self.corpus, self.rng), self.rng), self.corpus.fallback)
        entry = self.rng.choice(self.corpus.known)
        return Turn(vary(self.rng.choice(entry.trained), self.rng), entry.answer, entry)

    def sample(self) -> Sample:
        """One conversation, sometimes with a system prompt."""
        count = LONG_TURNS if self.rng.random() < LONG_SHARE else self.rng.choice(TURNS)
        turns = list[Turn]()
        for _ in range(count):
            turns.append(self.turn(turns[-1].about if turns else None))
        system = self.rng.choice(self.corpus.systems) if self.rng.random() < SYSTEM_SHARE else ""
        return render(turns, self.tokenizer, system)

    def batches(self, max_tokens: int) -> Iterator[Batch]:
        """Padded batches of at most max_tokens, in random order (one longer conversation is a batch of its own)."""
        while True:
            pool = sorted((self.sample() for _ in range(POOL)), key=lambda sample: len(sample.ids))
            groups: list[list[Sample]] = [[]]
            for sample in pool:
                if groups[-1] and len(sample.ids) * (len(groups[-1]) + 1) > max_tokens:
                    groups.append([])
                groups[-1].append(sample)
            self.rng.shuffle(groups)
            yield from map(pad, groups)


def pad(samples: list[Sample]) -> Batch:
    """One batch; the padding is never learned and, being last, never seen."""
    length = max(len(sample.ids) for sample in samples)
    ids = [sample.ids + [0] * (length - len(sample.ids)) for sample in samples]
    learn = [sample.learn + [False] * (length - len(sample.learn)) for sample in samples]
    return Batch(torch.tensor(ids), torch.tensor(learn))


def tokenizer_texts(corpus: Corpus, copies: int = 3) -> Iterator[str]:
    """What the tokenizer is trained on: answers weigh more than questions, and topics are in."""
    for entry in corpus.known:
        yield from (entry.answer, *entry.follow_ups.values())
        yield from (text for question in entry.trained for text in (question, question.lower()))
        yield from [entry.answer] * (copies - 1)
    for entry in (*corpus.unknown, *corpus.follow_ups.values()):
        yield from (text for question in entry.phrasings for text in (question, question.lower()))
    yield from (corpus.fallback, NO_SUBJECT, *corpus.systems, *corpus.follow_ups)
