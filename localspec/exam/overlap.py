"""How much of a question is in another, by runs of three words: what is trained may not come up in the exam.

Knows neither the exam nor what is trained.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

RUN = 3  # words
MOST_SHARED = 0.5
WORD = re.compile(r"[^\W_]+(?:['’_][^\W_]+)*")

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leak:
    """An exam question too much of which is in a training question. `share` of its runs of words."""

    asked: str
    trained: str
    share: float

    def __str__(self) -> str:
        return f"{self.share:.0%} of '{self.asked}' is in '{self.trained}'"


def runs(question: str) -> frozenset[Words]:
    """Every three words in a row; a question of fewer is one run."""
    words = tuple(word.replace("’", "'") for word in WORD.findall(question.casefold()))
    if len(words) < RUN:
        return frozenset({words})
    return frozenset(words[at : at + RUN] for at in range(len(words) - RUN + 1))


def leaks(exam: Iterable[str], training: Iterable[str]) -> Iterator[Leak]:
    """The exam questions that share more than half of their runs with one training question, and which."""
    trained = tuple(training)
    having = defaultdict[Words, list[int]](list)
    for number, question in enumerate(trained):
        for run in runs(question):
            having[run].append(number)
    for asked in exam:
        mine = runs(asked)
        shared = Counter(number for run in mine for number in having.get(run, ()))
        worst, count = shared.most_common(1)[0] if shared else (0, 0)
        if count > MOST_SHARED * len(mine):
            yield Leak(asked, trained[worst], count / len(mine))
