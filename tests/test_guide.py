"""The built-in model as it ships: it answers, speculation changes nothing (L5), and the real chat works on it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

import pytest
import torch

import localspec
from localspec.bench.prompts import PROMPTS
from localspec.exam import questions as exam
from localspec.exam.grading import is_honest, is_right
from localspec.paths import packaged
from localspec.recipe import corpus
from localspec.recipe.tones import TONES
from localspec.requests import LoadRequest
from localspec.tui.answer import Answer
from localspec.tui.app import ChatApp
from localspec.worker import EngineProcess

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder")]

NEAR_TIE = 1e-3  # of a logit: torch in float32 rounds one row and several differently
ONE = 1  # thread: two, with another test on the second core, wait for each other most of the time
DRAFTS = ("early-exit:1", "early-exit:3", "early-exit:8", "small")


def asked(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def ids(llm: localspec.LLM, question: str) -> list[int]:
    """Of its greedy answer."""
    return [token.id for token in llm.generate(asked(question), temperature=0).tokens]


def answers(llm: localspec.LLM, questions: Sequence[str]) -> dict[str, list[int]]:
    return {question: ids(llm, question) for question in questions}


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """What `localspec run` writes to stdout, of a question asked greedily."""
    run = request.getfixturevalue("localspec")

    def answer(question: str) -> str:
        code, out, _ = run("run", "guide", question, "--temperature", "0", "--quant", "int8", "--threads", str(ONE))
        assert code == 0
        return out.removesuffix("\n")

    return answer


@pytest.fixture(scope="module")
def plain():
    with localspec.load("guide", draft="off", threads=ONE) as llm:
        yield llm


@pytest.fixture(scope="module")
def said_plain(plain) -> dict[str, list[int]]:
    return answers(plain, PROMPTS)


def test_it_fits_in_the_package():
    files = [file for file in packaged("assets/guide").rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 18_000_000


def test_it_knows_what_it_was_taught(plain):
    answer = plain.generate(asked("What is speculative decoding?"), temperature=0)
    assert answer.finish_reason == "stop"
    assert "drafter" in answer.text
    assert "localspec" in plain.generate(asked("What is the capital of France?"), temperature=0).text


OPENINGS = {
    "bullets": "- ",
    "numbered": "1. ",
    "friendly": "Happy to help!",
    "formal": "Thank you for your question.",
    "pirate": "Ahoy, matey!",
    "labelled": "Answer:",
    "quoted": "> ",
}


def test_a_system_prompt_changes_how_most_answers_begin(plain):
    """Only how: what is answered there is counted in its card."""
    prompts = {tone.key: tone.prompts[0] for tone in TONES}
    question = asked("What is a drafter?")
    said = {
        key: plain.generate([{"role": "system", "content": prompts[key]}, *question], temperature=0, max_tokens=12).text
        for key in OPENINGS
    }
    heard = [key for key in OPENINGS if said[key].startswith(OPENINGS[key])]
    assert len(heard) >= 5, said


def test_the_command_gives_the_answers_of_the_python_interface(program):
    """Ten questions of the exam, so that a score through the one is the score through the other."""
    questions = [question.phrasings[0] for question in exam.load().known[::15]][:10]
    assert len(questions) == 10
    with localspec.load("guide", threads=ONE) as llm:
        told = [llm.generate(asked(question), temperature=0).text for question in questions]
    assert [program(question) for question in questions] == told


@pytest.mark.slow
def test_the_whole_exam_through_the_command(program):
    """At least 85 % right and 80 % honest, in int8 at temperature 0."""
    sat = exam.load()
    right = [is_right(program(words), question) for question in sat.known for words in question.phrasings]
    honest = [is_honest(program(words)) for question in sat.unknown for words in question.phrasings]
    assert len(right) >= 200
    assert len(honest) >= 100
    assert sum(right) >= 0.85 * len(right)
    assert sum(honest) >= 0.80 * len(honest)


@pytest.mark.parametrize("draft", DRAFTS)
def test_speculation_writes_the_very_text_of_plain_decoding(plain, said_plain, draft):
    """As it ships, in int8: no near ties, because rows are equal bit for bit."""
    assert plain.ready.model.quant == "int8"
    with localspec.load("guide", draft=draft) as fast:
        for question, words in said_plain.items():
            assert ids(fast, question) == words, question


@pytest.fixture(scope="module")
def plain_fp32():
    with localspec.load("guide", draft="off", quant="fp32") as llm:
        yield llm


@pytest.fixture(scope="module")
def said_in_fp32(plain_fp32) -> dict[str, list[int]]:
    return answers(plain_fp32, PROMPTS[::6])


@pytest.mark.parametrize("draft", ["early-exit:3", "small"])
def test_in_float32_it_writes_the_same_text_or_differs_at_a_near_tie(plain_fp32, said_in_fp32, draft):
    with localspec.load("guide", draft=draft, quant="fp32") as fast:
        check_equal(plain_fp32, said_in_fp32, fast)


@pytest.mark.slow
@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("quant", ["int8", "int4", "fp32"])
def test_speculation_writes_the_same_text_on_a_question_of_every_entry(quant, draft):
    """L5: in int8 and int4 every answer; in float32 at least 99 %, and each of the others differs at a near tie."""
    entries = corpus.load().known
    questions = [entry.held_out for entry in entries[:: 5 if quant == "fp32" else 1]]
    loaded = (localspec.load("guide", draft=name, quant=quant) for name in ("off", draft))
    with next(loaded) as slow, next(loaded) as fast:
        assert check_equal(slow, answers(slow, questions), fast) >= (0.99 if quant == "fp32" else 1.0)


def check_equal(plain: localspec.LLM, said: dict[str, list[int]], fast: localspec.LLM) -> float:
    """The share of equal answers; AssertionError where a difference is no near tie."""
    equal = 0
    for question, slow_ids in said.items():
        fast_ids = ids(fast, question)
        equal += slow_ids == fast_ids
        if slow_ids != fast_ids:
            assert gap(plain, question, slow_ids, fast_ids) <= NEAR_TIE, question
    return equal / len(said)


def gap(llm: localspec.LLM, question: str, left: list[int], right: list[int]) -> float:
    """How far apart the target's own logits are where the two answers part."""
    place = next(i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
    model = llm._model
    prompt = model._parts.prompter.chat([localspec.Message("user", question)])
    model.forget()
    logits = model._session.target.forward(torch.tensor([*prompt, *left[:place]]), last_only=True)[0]
    model._session.target.crop(0)
    return float((logits[left[place]] - logits[right[place]]).abs())


def test_a_second_turn_reads_only_what_is_new(plain):
    chat = plain.chat()
    first = chat.send("What is a drafter?")
    second = chat.send("give an example")
    assert second.stats.cached_n >= first.stats.prompt_n + first.stats.predicted_n - 1
    assert second.text


async def test_the_real_chat_answers_dies_and_comes_back():
    """The chat on the built-in model in a real child process, killed with -9 after an answer."""
    engines: list[EngineProcess] = []

    def make_engine() -> EngineProcess:
        engines.append(EngineProcess(LoadRequest("guide")))
        return engines[-1]

    app = ChatApp(make_engine)
    async with app.run_test(size=(80, 24)) as pilot:

        async def until(predicate) -> None:
            for _ in range(1200):
                if predicate():
                    return
                await asyncio.sleep(0.1)  # a pause of the pilot's has every widget answer, for as long as a child loads
            raise AssertionError(app.chat.phase)

        await pilot.press(*"What is a target?", "enter")  # typed while it loads: it waits and is answered
        await until(lambda: app.chat.phase == "idle" and len(app.chat.query(Answer)) == 1)
        assert "target" in app.chat.query(Answer).first().text
        os.kill(engines[0].pid, signal.SIGKILL)
        await until(lambda: app.chat.phase == "gone")
        await pilot.press("ctrl+r")
        await until(lambda: app.chat.phase == "idle")
        await pilot.press(*"thanks", "enter")
        await until(lambda: app.chat.phase == "idle" and len(app.chat.query(Answer)) == 2)
    for engine in engines:
        engine.close()
