"""Sitting the exam: what is asked, after what, and how the answers are counted. The networks here are scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tokenizers import Tokenizer

from localspec.core.paths import packaged
from training import evaluate
from training.dialogue import opening
from training.evaluate import NONSENSE, Scores, sit_exam
from training.exam.questions import Exam, Question
from training.tokenizer import TURN_END, control_ids

pytestmark = pytest.mark.heavy

KNOWN = Question("stop", ("stop key?", "which key stops it"), (("Esc",),))
UNKNOWN = Question("peru", ("capital of peru?",))
FOLLOWING = Question("start", ("and how does it begin",), (("chat",),), earlier="what is localspec")
BEYOND = Question("bolivia", ("and bolivia's?",), earlier="what is localspec")
EXAM = Exam((KNOWN,), (UNKNOWN,), (FOLLOWING, BEYOND))
HONEST = "I do not know."
ANSWERS = {
    "stop key?": "Press Esc.",
    "which key stops it": HONEST,
    "capital of peru?": HONEST,
    "what is localspec": "A local program.",
    "and how does it begin": "With localspec chat.",
    "and bolivia's?": HONEST,
}


class Script:
    """Stands for `greedy`: says what is written, and remembers the prompts."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.words = Tokenizer.from_file(str(packaged("assets/guide/target/tokenizer.json")))
        self.answers, self.prompts = answers, list[str]()
        self.end = control_ids(self.words)[TURN_END]
        self.ends = True

    def greedy(self, _network: Any, prompts: Sequence[list[int]], _known: Any, end: int) -> list[list[int]]:
        assert end == self.end
        texts = [self.words.decode(prompt, skip_special_tokens=False) for prompt in prompts]
        self.prompts += texts
        said = [self.answers[text.rpartition("user\n")[2].partition(TURN_END)[0]] for text in texts]
        return [self.words.encode(text, add_special_tokens=False).ids + [end] * self.ends for text in said]


def sit(script: Script, monkeypatch: pytest.MonkeyPatch) -> Scores:
    monkeypatch.setattr(evaluate, "greedy", script.greedy)
    network: Any = None
    return sit_exam(network, script.words, [], EXAM)


def test_every_group_is_counted_by_what_is_due_there(monkeypatch: pytest.MonkeyPatch):
    scores = sit(Script(ANSWERS), monkeypatch)
    assert scores == {"known": (1, 2), "unknown": (1, 1), "newcomer": (2, 2), NONSENSE: (0, 2)}


def test_of_a_newcomers_answers_those_that_are_no_text_are_counted(monkeypatch: pytest.MonkeyPatch):
    scores = sit(Script(ANSWERS | {"and bolivia's?": "The capital is the", "stop key?": "The key is the"}), monkeypatch)
    assert (scores["newcomer"], scores[NONSENSE]) == ((1, 2), (1, 2))


def test_what_a_question_follows_is_asked_once_and_answered_before_it(monkeypatch: pytest.MonkeyPatch):
    script = Script(ANSWERS)
    sit(script, monkeypatch)
    first = opening(FOLLOWING.earlier)
    assert script.prompts.count(first) == 1
    assert f"{first}A local program.{TURN_END}\n{opening(FOLLOWING.phrasings[0])}" in script.prompts
    assert opening(KNOWN.phrasings[0]) in script.prompts


def test_an_answer_that_never_ends_is_graded_as_far_as_it_went(monkeypatch: pytest.MonkeyPatch):
    script = Script(ANSWERS)
    script.ends = False
    assert sit(script, monkeypatch)["unknown"] == (1, 1)
