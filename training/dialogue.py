"""Conversations from the corpus, and batches of them: known questions, follow-ups, small talk, tasks, the unknown.

Renders exactly what the chat template renders. Only the assistant's tokens are to be learned. Knows no network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, repeat
from operator import itemgetter
from random import Random

import torch
from tokenizers import Tokenizer

from training.corpus import FOLLOW_UPS, NO_SUBJECT, Corpus, Entry, section
from training.exam.overlap import Questions
from training.network import MAX_POSITIONS
from training.tasks import task, wordings
from training.tokenizer import TURN_END, TURN_START
from training.tones import TONES
from training.train import Batch
from training.vary import elsewhere, invented_word, keywords, tell, vary

TURNS = (1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 7)
LONG_TURNS, LONG_SHARE = 14, 0.02  # a few long ones, so that a long chat stays on known ground
DECISION_TOKENS = (1, 4)
DECISION_TURNS = (1, 1, 2, 3, 4)
WHOLE_SHARE, CUT_TOKENS = 0.2, 12  # of a decision's earlier answers; how long the others are, on average
SYSTEM_SHARE, TONE_SHARE = 0.2, 0.06  # the second is part of the first
UNKNOWN_SHARE, ELSEWHERE_SHARE, FOLLOW_UP_SHARE, TASK_SHARE = 0.2, 0.2, 0.2, 0.04
NO_SUBJECT_SHARE, KEYWORD_SHARE, WRITTEN_SHARE, SECOND_SHARE = 0.02, 0.1, 0.5, 0.3
FOLLOWED_SHARE = 0.1  # a tenth of the samples: a question, and one that only its answer explains
THEN_SHARE = 0.5  # of these, and of follow-ups where there is a choice, those of then.md
STORY_SHARE = 1 / 6  # of the questions, known or not, outside follow-ups and tasks
FREE_SHARE = 0.15  # of samples in talks: tasks and tones, whole, for nothing of them is known by heart
OPENING_WORDS = 3
POOL = 1024  # samples sorted by length at a time, so that padding stays small
HELD_OUT_TOPICS = 12
NO_EXAM = Questions(())
NEED_SUBJECT = tuple(kind for kind in FOLLOW_UPS if kind != "simpler")  # that is an entry of its own: 'simple-words'
PLACE = re.compile(r"\{[^}]*\}")


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


def asked(corpus: Corpus, seed: int, exam: Questions = NO_EXAM) -> list[tuple[str, str]]:
    """Every question with its answer, and among them as many unknown ones as in a conversation."""
    rng = Random(seed)
    known = [(question, entry.answer) for entry in corpus.known for question in entry.trained]
    others = (Turn(unknown(corpus, rng), corpus.fallback) for _ in repeat(None))
    unseen = (turn for turn in others if not any(exam.leaks(turn.question)))
    return known + [(turn.question, turn.answer) for turn in islice(unseen, int(len(known) * UNKNOWN_SHARE))]


def unknown(corpus: Corpus, rng: Random) -> str:
    """A question that nothing here answers: also a known one that asks about something else instead."""
    if rng.random() > ELSEWHERE_SHARE:
        return unknown_question(corpus, rng)
    topics = section(corpus.unknown, "topics").phrasings[:-HELD_OUT_TOPICS]
    subject = invented_word(rng) if rng.random() < 0.2 else rng.choice(topics)
    return elsewhere(rng.choice(rng.choice(corpus.known).trained), subject)


def unknown_question(corpus: Corpus, rng: Random, held_out: bool = False) -> str:
    """A question outside the corpus: written whole, built from a topic, or about an invented word."""
    topics = section(corpus.unknown, "topics").phrasings
    questions = section(corpus.unknown, "questions").phrasings
    cut = slice(-HELD_OUT_TOPICS, None) if held_out else slice(None, -HELD_OUT_TOPICS)
    if rng.random() < WRITTEN_SHARE:
        return rng.choice(questions[cut])
    template = rng.choice(section(corpus.unknown, "templates").phrasings)
    topic = invented_word(rng) if rng.random() < 0.2 else rng.choice(topics[cut])
    return template.replace("{}", topic)


class Author:
    """Writes batches of conversations without end; the seed decides them all.

    `decisions` is the share of samples that end soon after an answer has begun: which answer is meant is hard, the
    rest of it is learned by heart. `talks`: those have earlier turns too, whose answers are mostly cut short, as by
    a user who has read enough; of each only the beginning is learned; and there are tasks and tones, whole.
    What gives a question of `exam` away is drawn again: varied, a question that is far from it may come near.
    `place` is the pool that is being handed out and how many of its batches are: an author starts again from there.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        seed: int,
        decisions: float,
        place: tuple[int, int] = (0, 0),
        *,
        talks: bool = False,
        exam: Questions = NO_EXAM,
    ) -> None:
        self.corpus, self.tokenizer, self.talks, self.exam = corpus, tokenizer, talks, exam
        self.seed, self.decisions, self.place = seed, decisions, place
        self.rng = Random(seed)

    def unseen(self, draw: Callable[[], Turn]) -> Turn:
        """The first turn drawn that gives no question of the exam away."""
        while any(self.exam.leaks((turn := draw()).question)):
            pass
        return turn

    def turn(self, about: Entry | None) -> Turn:
        """The next turn of a conversation whose subject so far is about."""
        return self.unseen(lambda: self._turn(about))

    def _turn(self, about: Entry | None) -> Turn:
        roll = self.rng.random()
        if about and roll < FOLLOW_UP_SHARE:
            return self._follow_up(about)
        if roll < NO_SUBJECT_SHARE:
            return Turn(self._follow_up_question(self.rng.choice(NEED_SUBJECT)), NO_SUBJECT)
        if roll > 1 - UNKNOWN_SHARE:
            return Turn(self._told(unknown(self.corpus, self.rng)), self.corpus.fallback)
        if roll > 1 - UNKNOWN_SHARE - TASK_SHARE:
            return self._task()
        return self._known()

    def _told(self, question: str) -> str:
        """The question as it is typed, sometimes with a story around it."""
        asked = vary(question, self.rng)
        return tell(self.rng.choice(self.corpus.stories), asked) if self.rng.random() < STORY_SHARE else asked

    def _follow_up_question(self, kind: str) -> str:
        return vary(self.rng.choice(self.corpus.follow_ups[kind].trained), self.rng)

    def _follow_up(self, about: Entry) -> Turn:
        """Asks for more of the last answer, or for what another entry says of its subject."""
        thens = self.corpus.then.get(about.key, ())
        if thens and self.rng.random() < THEN_SHARE:
            then = self.rng.choice(thens)
            return Turn(vary(self.rng.choice(then.phrasings), self.rng), then.meant.answer, then.meant)
        kind = self.rng.choice(FOLLOW_UPS)
        return Turn(self._follow_up_question(kind), about.follow_up(kind), about)

    def followed(self) -> Sample:
        """A question and what follows it, half of the time after an entry that then.md has something to ask about."""
        chosen = [entry for entry in self.corpus.known if entry.key in self.corpus.then]
        entries = chosen if chosen and self.rng.random() < THEN_SHARE else self.corpus.known
        first = self.unseen(lambda: self._known(entries))
        about = first.about
        assert about is not None
        second = self.unseen(lambda: self._follow_up(about))
        return render([first, second], self.tokenizer)

    def _task(self) -> Turn:
        return Turn(*task(self.rng))

    def _known(self, entries: Sequence[Entry] = ()) -> Turn:
        entry = self.rng.choice(entries or self.corpus.known)
        few = self.rng.random() < KEYWORD_SHARE
        question = keywords(entry.trained, self.rng) if few else self.rng.choice(entry.trained)
        return Turn(self._told(question), entry.answer, entry)

    def free(self) -> Sample:
        """A task, or a tone that the system prompt asks for; sometimes after another turn."""
        before = [self.turn(None)] if self.rng.random() < SECOND_SHARE else []
        if self.rng.random() < 0.5:
            return render([*before, self.unseen(self._task)], self.tokenizer)
        turns, tone = [*before, self.unseen(self._known)], self.rng.choice(TONES)
        turns = [replace(turn, answer=tone.apply(turn.answer)) for turn in turns]
        return render(turns, self.tokenizer, self.rng.choice(tone.prompts))

    def conversation(self, count: int) -> Sample:
        """Makes a conversation of `count` turns, sometimes after a system prompt, which may ask for a tone."""
        turns, roll = list[Turn](), self.rng.random()
        for _ in range(count):
            turns.append(self.turn(turns[-1].about if turns else None))
        if roll > SYSTEM_SHARE:
            return render(turns, self.tokenizer)
        if roll > TONE_SHARE:
            return render(turns, self.tokenizer, self.rng.choice(self.corpus.systems))
        tone = self.rng.choice(TONES)
        turns = [replace(turn, answer=tone.apply(turn.answer)) for turn in turns]
        return render(turns, self.tokenizer, self.rng.choice(tone.prompts))

    def sample(self) -> Sample:
        """A conversation, or only questions and the beginnings of their answers."""
        if self.talks and self.rng.random() < FREE_SHARE:
            return self.free()
        if self.rng.random() < FOLLOWED_SHARE:
            pair = self.followed()
            return beginnings(pair, self.rng) if self.rng.random() < self.decisions else pair
        if self.rng.random() < self.decisions:
            return beginnings(self.conversation(self.rng.choice(DECISION_TURNS) if self.talks else 1), self.rng)
        return self.conversation(LONG_TURNS if self.rng.random() < LONG_SHARE else self.rng.choice(TURNS))

    def _pool(self, max_tokens: int) -> list[list[Sample]]:
        self.rng = Random(f"{self.seed}:{self.place[0]}")
        pool = sorted((fitting(self.sample()) for _ in range(POOL)), key=lambda sample: len(sample.ids))
        groups: list[list[Sample]] = [[]]
        for sample in pool:
            if groups[-1] and len(sample.ids) * (len(groups[-1]) + 1) > max_tokens:
                groups.append([])
            groups[-1].append(sample)
        self.rng.shuffle(groups)
        return groups

    def batches(self, max_tokens: int) -> Iterator[Batch]:
        """Padded batches of at most max_tokens, in random order (one longer conversation is a batch of its own)."""
        while True:
            number, given = self.place
            for place, group in enumerate(self._pool(max_tokens)[given:], start=given + 1):
                self.place = (number, place)
                yield pad(group)
            self.place = (number + 1, 0)


def fitting(whole: Sample) -> Sample:
    """The part of it that a network has positions for."""
    return Sample(whole.ids[:MAX_POSITIONS], whole.learn[:MAX_POSITIONS])


def beginnings(whole: Sample, rng: Random) -> Sample:
    """The conversation until its last answer has begun, earlier answers mostly cut short; their beginnings are to be
    learned."""
    ids, learn = list[int](), list[bool]()
    runs = [(learned, list(run)) for learned, run in groupby(zip(whole.ids, whole.learn, strict=True), itemgetter(1))]
    last = max(number for number, (learned, _) in enumerate(runs) if learned)
    for number, (learned, run) in enumerate(runs[: last + 1]):
        kept = [token for token, _ in run]
        begun = rng.randint(*DECISION_TOKENS) if learned else 0
        if number == last:
            kept = kept[:begun]
        elif learned and rng.random() > WHOLE_SHARE:
            kept = [*kept[: begun + int(rng.expovariate(1 / CUT_TOKENS))][: len(kept) - 1], kept[-1]]
        ids += kept
        learn += [True] * min(begun, len(kept)) + [False] * (len(kept) - begun)
    return Sample(ids, learn)


def pad(samples: list[Sample]) -> Batch:
    """One batch; the padding is never learned and, being last, never seen."""
    length = max(len(sample.ids) for sample in samples)
    ids = [sample.ids + [0] * (length - len(sample.ids)) for sample in samples]
    learn = [sample.learn + [False] * (length - len(sample.learn)) for sample in samples]
    return Batch(torch.tensor(ids), torch.tensor(learn))


def trained_questions(corpus: Corpus) -> tuple[str, ...]:
    """Every question that may be asked in training, before it is varied; in a task, a word that nothing else has
    stands where one is filled in."""
    entries = (*corpus.known, *corpus.unknown, *corpus.follow_ups.values(), *wordings().values())
    found = [phrasing for entry in entries for phrasing in entry.phrasings]
    topics = section(corpus.unknown, "topics").phrasings
    found += [form.replace("{}", topic) for form in section(corpus.unknown, "templates").phrasings for topic in topics]
    found += [asked for thens in corpus.then.values() for then in thens for asked in then.phrasings]
    found += corpus.stories
    return tuple(dict.fromkeys(PLACE.sub("xplacex", question) for question in found))


def tokenizer_texts(corpus: Corpus, copies: int = 3) -> Iterator[str]:
    """The texts that the tokenizer is trained on: answers weigh more than questions, and topics are in."""
    for entry in corpus.known:
        yield from (entry.answer, *entry.follow_ups.values())
        yield from (text for question in entry.trained for text in (question, question.lower()))
        yield from [entry.answer] * (copies - 1)
    for entry in (*corpus.unknown, *corpus.follow_ups.values()):
        yield from (text for question in entry.phrasings for text in (question, question.lower()))
    yield from (corpus.fallback, NO_SUBJECT, *corpus.systems, *corpus.follow_ups, *corpus.stories)
    yield from dict.fromkeys(asked for thens in corpus.then.values() for then in thens for asked in then.phrasings)


def openings(corpus: Corpus) -> tuple[str, ...]:
    """The fewest first words of each answer, but OPENING_WORDS at least, with which no other answer begins."""
    answers = dict.fromkeys([*(entry.answer for entry in corpus.known), corpus.fallback])
    return tuple(dict.fromkeys(_opening(answer, answers) for answer in answers))


def _opening(answer: str, answers: Iterable[str]) -> str:
    ends = [word.end() for word in re.finditer(r"\S+", answer)]
    starts = [answer[:end] for end in ends[OPENING_WORDS - 1 :]]
    alone = (start for start in starts if not any(a.startswith(start) for a in answers if a != answer))
    return next(alone, answer)
