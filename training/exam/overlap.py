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


class Questions:
    """The exam's questions, found by their runs of words."""

    def __init__(self, exam: Iterable[str]) -> None:
        self._runs = {asked: runs(asked) for asked in exam}
        self._having = defaultdict[Words, list[str]](list)
        for asked, mine in self._runs.items():
            for run in mine:
                self._having[run].append(asked)

    def leaks(self, trained: str) -> Iterator[Leak]:
        """Yields the exam's questions that share more than half of their runs with this training question."""
        shared = Counter(asked for run in runs(trained) for asked in self._having.get(run, ()))
        for asked, count in shared.items():
            if count > MOST_SHARED * len(self._runs[asked]):
                yield Leak(asked, trained, count / len(self._runs[asked]))


def leaks(exam: Iterable[str], training: Iterable[str]) -> Iterator[Leak]:
    """The worst leak of each exam question that leaks."""
    asked, worst = Questions(exam), dict[str, Leak]()
    for leak in (leak for question in training for leak in asked.leaks(question)):
        if leak.asked not in worst or leak.share > worst[leak.asked].share:
            worst[leak.asked] = leak
    yield from worst.values()
