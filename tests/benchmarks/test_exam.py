"""The exam, with and without speculation: what is asked, how it is scored, and what is said where they differ."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.exam import measure, speed
from benchmarks.exam.__main__ import main
from benchmarks.exam.measure import measure_exam
from benchmarks.exam.report import Answer, ExamReport, Sitting
from benchmarks.program import run
from localspec.core.events import AnyEvent, Loading, Memory, ModelCard, Notice, Ready, SpecCard
from localspec.core.requests import LoadRequest
from localspec.models.spelling import READ_AS
from tests.cli.test_cli import complaints
from training.exam.questions import Exam, Question, load

pytestmark = pytest.mark.heavy

KNOWN = Question("key/k", ("How far does it draft?", "how long is a draft"), (("k",),))
UNKNOWN = Question("fact/peru", ("Which city is the capital of Peru?",))
EXAM = Exam((KNOWN,), (UNKNOWN,))
FOLLOWING = Question("talk/draft", ("and is that a long draft",), (("k",),), earlier="What is verified?")
WITH_NEWCOMER = Exam((KNOWN,), (UNKNOWN,), (FOLLOWING, Question("beyond", ("and Bolivia's?",))))
HONEST = "I only know about localspec."
FAILED = Notice("warning", "drafter_failed", "The drafter failed (why).", "")


@dataclass
class Scripted:
    """A stream that says one text, after a Notice if there is one."""

    text: str
    notice: Notice | None
    finish_reason: str = "stop"

    def __iter__(self) -> Iterator[AnyEvent]:
        yield from [self.notice] if self.notice else []

    def result(self) -> Any:
        return self


def card(quant: str, device: str) -> ModelCard:
    return ModelCard("guide", quant, device, 2048, chat=True)


def drafter(asked: Any) -> SpecCard:
    """As `opening` would have it, for each of the guide's."""
    if asked == "off":
        return SpecCard("off")
    return SpecCard("early-exit", "layers 1–1", exit_layer=1) if asked == "auto" else SpecCard("model", "small")


class Engine:
    """Stands for `load_events`: what every format and drafter says, and what was asked of it."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, Any]] = []
        self.asked: list[tuple[str, int | None, float]] = []
        self.talks: list[list[tuple[str, str]]] = []
        self.other: dict[tuple[str, str], str] = {}
        self.notice: Notice | None = None
        self.device = "cpu"
        self.open = 0

    def load_events(self, request: LoadRequest) -> Iterator[Notice]:
        self.loaded.append((request.weights.weight_format, request.draft))
        yield from []
        return self.llm(request)

    @contextmanager
    def llm(self, request: LoadRequest) -> Iterator[Any]:
        def stream(messages: list[Any], *, max_tokens: int | None, temperature: float) -> Scripted:
            question = messages[-1].content
            self.asked.append((question, max_tokens, temperature))
            self.talks.append([(message.role, message.content) for message in messages])
            text = "up to k tokens" if "draft" in question else HONEST
            drafts = "off" if request.draft == "off" else "drafts"
            notice = self.notice if drafts == "drafts" else None
            reason = "length" if max_tokens is not None and "draft" in question else "stop"
            return Scripted(self.other.get((request.weights.weight_format, drafts), text), notice, reason)

        self.open += 1
        assert self.open == 1, "one model at a time"
        ready = Ready(card(request.weights.weight_format, self.device), drafter(request.draft), Memory(0, 0, 0))
        yield SimpleNamespace(stream=stream, ready=ready)
        self.open -= 1


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(measure, "load_events", made.load_events)
    monkeypatch.setattr(measure, "load_exam", lambda: EXAM)
    return made


def take(**given: Any) -> ExamReport:
    return measure_exam(LoadRequest("guide"), **given)


def test_every_phrasing_is_asked_greedily_in_every_format_plain_and_with_every_drafter(engine: Engine):
    made = take()
    assert [(row.quant, row.method.split()[0]) for row in made.rows()] == [
        (quant, method) for quant in ("int8", "bf16") for method in ("plain", "early", "draft")
    ]
    assert [quant for quant, _ in engine.loaded] == ["int8"] * 3 + ["bf16"] * 3
    phrasings = [*KNOWN.phrasings, *UNKNOWN.phrasings]
    assert engine.asked == [(phrasing, None, 0.0) for phrasing in phrasings] * 6


def test_known_questions_must_be_right_and_unknown_ones_honest(engine: Engine):
    row = take(formats=["int8"]).rows()[0]
    assert (row.right, row.known, row.honest, row.unknown, row.equal) == (2, 2, 1, 1, 3)
    engine.other["int8", "off"] = HONEST
    assert take(formats=["int8"]).rows()[0].right == 0
    engine.other["int8", "off"] = "Lima, up to k."
    assert take(formats=["int8"]).rows()[0].honest == 0


def test_a_newcomers_questions_must_be_right_or_honest_whichever_is_due(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(measure, "load_exam", lambda: WITH_NEWCOMER)
    row = take(formats=["int8"]).rows()[0]
    assert (row.right, row.honest, row.newcomer_good, row.newcomer, row.equal) == (2, 1, 2, 2, 5)
    engine.other["int8", "off"] = HONEST
    assert take(formats=["int8"]).rows()[0].newcomer_good == 1


def test_what_a_question_follows_is_asked_before_it_and_answered(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measure, "load_exam", lambda: Exam((), (), (FOLLOWING,)))
    (answer,) = take(formats=["int8"]).sittings[0].answers
    asked = [("user", FOLLOWING.earlier), ("assistant", HONEST), ("user", FOLLOWING.phrasings[0])]
    assert engine.talks[:2] == [asked[:1], asked]
    assert (answer.question, answer.answer) == (FOLLOWING.phrasings[0], "up to k tokens")


def test_a_speculative_score_that_is_not_plains_is_an_error_after_the_table(engine: Engine):
    """In bf16 the texts may differ at a near tie; the scores may not."""
    engine.other["bf16", "drafts"] = HONEST
    made = take(formats=["bf16"])
    assert made.losses[0] == (
        "Speculation is not lossless: early exit 2 in bf16 scores 0 right, 1 honest and 0 good to a newcomer, "
        "plain 2 right, 1 honest and 0 good to a newcomer."
    )


@pytest.mark.parametrize(("quant", "lossless"), [("int8", False), ("bf16", True)])
def test_other_words_with_the_same_score_are_an_error_where_texts_are_promised_to_be_equal(
    quant: str, lossless: bool, engine: Engine
):
    engine.other[quant, "drafts"] = f"k. {HONEST}"
    made = take(formats=[quant])
    assert [row.equal for row in made.rows()] == [3, 0, 0]
    assert (made.losses == ()) is lossless
    assert (
        lossless or made.losses[0] == "Speculation is not lossless: early exit 2 in int8 writes other text than plain."
    )


def test_a_drafter_that_failed_loses_its_label(engine: Engine):
    engine.notice = FAILED
    made = take(formats=["int8"])
    assert [row.method for row in made.rows()][:2] == ["plain", "early exit 2 (failed: decoded plain)"]
    assert made.notes[0] == "early exit 2 in int8: The drafter failed (why)."


def test_a_question_that_was_read_otherwise_is_no_drafters_fault(engine: Engine):
    engine.notice = Notice("info", READ_AS, "Read as: what is a draft?")
    made = take(formats=["int8"])
    assert [row.method for row in made.rows()][:2] == ["plain", "early exit 2"]
    assert made.notes == ()


@pytest.mark.usefixtures("engine")
def test_answers_that_were_cut_are_told_below_the_table():
    cut = take(formats=["int8"], max_tokens=8)
    assert cut.notes == ("Cut at 8 tokens, and so perhaps counted as wrong: 6 of 9 answers. Raise -n.",)
    assert cut.to_markdown().endswith(f"\n\n{cut.notes[0]}")
    assert take(formats=["int8"]).notes == ()


@pytest.mark.parametrize("device", ["cpu", "cuda and main memory"])
def test_the_machine_is_what_the_exam_was_taken_on(device: str, engine: Engine, monkeypatch: pytest.MonkeyPatch):
    engine.device = device
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
    assert (take(formats=["bf16"]).machine["processor"] == "A GPU") is (device != "cpu")


def sitting(method: str = "plain", *good: bool) -> Sitting:
    answers = tuple(Answer("key", f"Question {place}?", "known", "words", one) for place, one in enumerate(good))
    return Sitting(method, "0", "int8", "cpu", answers)


def test_the_three_formats_say_the_same():
    plain = sitting("plain", True, False, True)
    made = ExamReport("guide", "guide", {"cores": "2"}, (plain, replace(plain, method="early exit 1")), ("A note.",))
    read = json.loads(made.to_json())
    as_csv = list(csv.DictReader(io.StringIO(made.to_csv())))
    assert [{name: str(value) for name, value in row.items()} for row in read["rows"]] == [
        {name: value for name, value in row.items() if name not in ("task", "model")} for row in as_csv
    ]
    assert "| early exit 1 | int8 | 0 | 2/3 66.7% | – | – | 3/3 |" in made.to_markdown()
    assert [(one["question"], one["good"]) for one in read["answers"]][:2] == [
        ("Question 0?", True),
        ("Question 1?", False),
    ]


def test_wrong_answers_are_shown_once_with_those_who_gave_them():
    plain = sitting("plain", True, False)
    made = ExamReport("guide", "guide", {}, (plain, replace(plain, method="early exit 1")), list_wrong=True)
    assert made.to_markdown().endswith("\n\n**Question 1?** (int8 plain, int8 early exit 1)\n\n> words")
    assert "**" not in replace(made, list_wrong=False).to_markdown()


def test_a_wrong_answer_cannot_command_the_terminal():
    told = Answer("key", "Question?", "known", "\x1b]0;owned\x07red\n\x1b[31mtext", False)
    made = ExamReport("guide", "guide", {}, (Sitting("plain", "0", "int8", "cpu", (told,)),), list_wrong=True)
    assert "\x1b" not in made.to_markdown() + made.to_json()
    assert "\x07" not in made.to_markdown()


@pytest.mark.usefixtures("engine")
def test_how_far_the_exam_is_is_told():
    told: list[Loading] = []
    take(formats=["int8"], tell=told.append)
    assert [event.done for event in told] == [11, 22, 33, 44, 56, 67, 78, 89, 100]
    assert {(event.stage, event.unit, event.eta_s) for event in told} == {("the exam of guide", "percent", None)}


def test_the_exams_known_questions_are_prompts_to_measure_speed_on(monkeypatch: pytest.MonkeyPatch):
    asked: list[Any] = []
    monkeypatch.setattr(
        speed,
        "measure",
        lambda *_, **given: asked.append(given) or SimpleNamespace(to_markdown=str, to_json=str, to_csv=str),
    )
    speed.main(["guide", "--format", "int8,fp32", "-n", "16", "-r", "1"])
    assert [one.text for one in asked[0]["prompts"]] == [
        phrasing for question in load().known for phrasing in question.phrasings
    ]
    assert (asked[0]["formats"], asked[0]["max_tokens"], asked[0]["repeats"]) == (("int8", "fp32"), 16, 1)


def test_a_format_that_does_not_exist_is_refused_before_anything_is_loaded(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert sit_exam(monkeypatch, "--format", "int3") == 2
    assert "There is no weight format 'int3'." in capsys.readouterr().err
    assert engine.loaded == []


def sit_exam(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["benchmarks.exam", "guide", *words])
    return run(main)


@pytest.mark.parametrize(
    ("words", "formats"),
    [((), ["int8", "bf16"]), (("--format", "fp32"), ["fp32"]), (("--format", "bf16,int8"), ["int8", "bf16"])],
)
def test_the_command_takes_the_formats_that_are_asked_for(
    words: tuple[str, ...], formats: list[str], engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    assert sit_exam(monkeypatch, *words) == 0
    assert list(dict.fromkeys(quant for quant, _ in engine.loaded)) == formats


def test_the_command_prints_the_scores_and_then_fails_where_they_differ(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    engine.other["int8", "drafts"] = "no"
    assert sit_exam(monkeypatch, "-n", "8", "-o", "json") == 1
    said = capsys.readouterr()
    assert [row["right"] for row in json.loads(said.out)["rows"]] == [2, 0, 0, 2, 2, 2]
    (complaint,) = complaints(said.err.encode())
    assert complaint.startswith(
        "error: Speculation is not lossless: early exit 2 in int8 scores 0 right, 0 honest and "
    )
    assert {limit for _, limit, _ in engine.asked} == {8}


@pytest.mark.slow
@pytest.mark.usefixtures("one_state_folder")
def test_speculation_changes_no_score_of_the_real_model(monkeypatch: pytest.MonkeyPatch):
    """A few questions of the exam; the whole of it is `python -m benchmarks.exam`."""
    whole = load()
    monkeypatch.setattr(measure, "load_exam", lambda: Exam(whole.known[:3], whole.unknown[:2]))
    made = measure_exam(LoadRequest.of("guide", threads=1), max_tokens=24)
    assert [row.equal for row in made.rows()][:3] == [made.rows()[0].known + made.rows()[0].unknown] * 3
    assert made.losses == ()
    assert [note for note in made.notes if not note.startswith("Cut at 24 tokens")] == []
