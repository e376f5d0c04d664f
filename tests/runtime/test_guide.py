"""The built-in model as it ships: it answers, speculation changes nothing (L5), and the real chat works on it."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
from collections.abc import Callable, Sequence

import pytest
import torch

import localspec
from localspec.bench.prompts import QUESTIONS
from localspec.core.events import Notice
from localspec.core.paths import packaged
from localspec.core.requests import LoadRequest
from localspec.models.spelling import READ_AS
from localspec.runtime.worker import EngineProcess
from localspec.tui.app import ChatApp
from localspec.tui.transcript.answer import Answer
from tests.cli.test_cli import complaints
from tests.training.test_card import exam_scores
from tests.training.test_corpus_commands import unknown_commands, unknown_flags
from training import corpus
from training.evaluate import NONSENSE
from training.exam import questions as exam
from training.exam.grading import is_good, is_honest, is_nonsense, is_right
from training.tones import TONES

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder")]

NEAR_TIE = 1e-3  # of a logit: torch in float32 rounds one row and several differently
NEAR_TIES = 3  # answers of the exam that may differ between float32, in which the card counts, and int8
ONE = 1  # thread: two, with another test on the second core, wait for each other most of the time
RETIRED = frozenset(  # flags and commands that the weights may still name; guide's next training empties it
    {"--shape", "--agree", "--exit-layer", "--offload", "--ui", "--task", "--wrong"}
)
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
    return answers(plain, QUESTIONS)


def test_it_fits_in_the_package():
    files = [file for file in packaged("assets/guide").rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 20_000_000


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


@pytest.mark.slow
def test_the_command_gives_the_answers_of_the_python_interface(program):
    """Five questions of the exam, so that a score through the one is the score through the other."""
    questions = [question.phrasings[0] for question in exam.load().known[::30]][:5]
    assert len(questions) == 5
    with localspec.load("guide", threads=ONE) as llm:
        told = [llm.generate(asked(question), temperature=0).text for question in questions]
    assert [program(question) for question in questions] == told


@pytest.mark.slow
def test_the_whole_exam_through_the_command(program):
    """The card's figures hold in int8 at temperature 0, near ties aside; what they should be is test_card.py's."""
    sat, said = exam.load(), exam_scores()
    right = [is_right(program(words), question) for question in sat.known for words in question.phrasings]
    honest = [is_honest(program(words)) for question in sat.unknown for words in question.phrasings]
    assert len(right) >= 200
    assert len(honest) >= 100
    assert sum(right) >= said["known"][0] - NEAR_TIES
    assert sum(honest) >= said["unknown"][0] - NEAR_TIES


@pytest.mark.slow
def test_a_newcomer_gets_the_answers_that_the_card_counts(plain):
    said = [(to_follow_up(plain, one.earlier, words), one) for one in exam.load().newcomer for words in one.phrasings]
    assert sum(is_good(*one) for one in said) >= exam_scores()["newcomer"][0] - NEAR_TIES
    assert sum(is_nonsense(*one) for one in said) <= exam_scores()[NONSENSE][0] + NEAR_TIES


def to_follow_up(llm: localspec.LLM, earlier: str, question: str) -> str:
    """The greedy answer, after the one to an earlier question where there is one."""
    chat = llm.chat(temperature=0)
    if earlier:
        chat.send(earlier)
    return chat.send(question).text


@pytest.mark.slow
@pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.slow)])
def test_no_answer_names_a_flag_or_a_command_that_never_existed(plain, every):
    """One question of every entry, or of every twentieth."""
    asking = [asked(entry.held_out) for entry in corpus.load().known[::every]]
    said = [plain.generate(messages, temperature=0).text for messages in asking]
    assert unknown_flags(said) | unknown_commands(said) <= RETIRED


@pytest.mark.sampled(4)
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
    return answers(plain_fp32, QUESTIONS[::6])


@pytest.mark.sampled(2)
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
    prompt = model.state.parts.prompter.chat([localspec.Message("user", question)])
    model.forget()
    logits = model.state.session.target.forward(torch.tensor([*prompt, *left[:place]]), last_only=True)[0]
    model.state.session.target.crop(0)
    return float((logits[left[place]] - logits[right[place]]).abs())


def test_a_second_turn_reads_only_what_is_new(plain):
    chat = plain.chat()
    first = chat.send("What is a drafter?")
    second = chat.send("give an example")
    assert second.stats.cached_n >= first.stats.prompt_n + first.stats.predicted_n - 1
    assert second.text


# --- what is typed in a hurry


TYPED = (
    "What is localspec?",
    "What is speculative decoding?",
    "What is a drafter?",
    "What does the acceptance rate mean?",
    "How do I quit the chat?",
    "What is the KV cache?",
    "Which models can I use?",
    "How do I install localspec?",
)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def slipped(question: str, kind: str, rng: random.Random) -> str:
    """With one slip of the finger in its longest word, anywhere but that nothing changes."""
    word = max(re.findall(r"[A-Za-z]+", question), key=len)
    at = rng.choice([at for at in range(len(word) - 1) if word[at] != word[at + 1]])
    here, after = word[at], word[at + 1 :]
    slips = {
        "swapped": after[0] + here + after[1:],
        "missing": after,
        "doubled": here + here + after,
        "wrong": rng.choice(LETTERS.replace(here.lower(), "")) + after,
    }
    return question.replace(word, word[:at] + slips[kind], 1)


def in_a_hurry(question: str, rng: random.Random) -> dict[str, str]:
    kinds = ("swapped", "missing", "doubled", "wrong")
    return {"capitals": question.upper()} | {kind: slipped(question, kind, rng) for kind in kinds}


def said_to(llm: localspec.LLM, question: str) -> str:
    return llm.generate(asked(question), temperature=0).text


@pytest.mark.slow
def test_capitals_and_slips_change_hardly_an_answer(plain):
    rng = random.Random(0)
    kinds: dict[str, list[bool]] = {}
    for question in TYPED:
        answer = said_to(plain, question)
        for kind, typed in in_a_hurry(question, rng).items():
            kinds.setdefault(kind, []).append(said_to(plain, typed) == answer)
    assert {kind: sum(same) for kind, same in kinds.items() if sum(same) < len(TYPED) - 1} == {}


@pytest.mark.slow
def test_capitals_and_slips_in_the_whole_exam():
    """Of 249 that are right as they are written 239 stay right in capitals, and 246, 244, 247 and 237 with two letters
    of the longest word swapped, one missing, doubled or wrong; with folding=False 11, and 216, 226, 219 and 212. Of 133
    honest answers 128 to 132 stay honest, and 126 to 130. Counted on 2026-11-23, by this test."""
    rng, sat = random.Random(0), exam.load()
    with localspec.load("guide", draft="off", quant="int8", threads=ONE) as llm:
        known = [(words, question) for question in sat.known for words in question.phrasings]
        known = [(words, question) for words, question in known if is_right(said_to(llm, words), question)]
        unknown = [words for question in sat.unknown for words in question.phrasings]
        unknown = [words for words in unknown if is_honest(said_to(llm, words))]
        right = [
            {kind: is_right(said_to(llm, typed), question) for kind, typed in in_a_hurry(words, rng).items()}
            for words, question in known
        ]
        honest = [
            {kind: is_honest(said_to(llm, typed)) for kind, typed in in_a_hurry(words, rng).items()}
            for words in unknown
        ]
    counts = {kind: (sum(one[kind] for one in right), sum(one[kind] for one in honest)) for kind in right[0]}
    print(len(known), len(unknown), counts)
    assert all(kept >= 0.93 * len(known) for kept, _ in counts.values()), counts
    assert all(kept >= 0.92 * len(unknown) for _, kept in counts.values()), counts


def test_it_refuses_sums_also_after_other_questions(plain):
    chat = plain.chat(temperature=0)
    for question in (
        "What is 4 + 4?",
        "What is a drafter?",
        "and 7-2?",
        "WHAT IS 3 PLUS 4",
        "What is the KV cache?",
        "1+1",
    ):
        answer = chat.send(question)
        assert is_honest(answer.text) == bool(re.search(r"\d", question)), answer.text


def test_a_question_is_answered_as_well_after_others(plain):
    """Of 132 second questions read with the first, 47 had an answer that named what was asked for."""
    asked_for = {"What is int8?": "int8", "What is GGUF?": "GGUF", "What does F2 do?": "F2", "How do I quit?": "Ctrl+Q"}
    chat = plain.chat(temperature=0)
    for question, word in [*asked_for.items(), *reversed(asked_for.items())]:
        assert word in chat.send(question).text


def test_how_a_question_was_read_is_told_once_and_the_next_turn_reads_only_what_is_new(plain):
    chat = plain.chat(temperature=0)
    first, *others = chat.stream("WAHT IS A DRAFTER?")
    assert first == Notice("info", READ_AS, "Read as: what is a drafter?")
    assert [event for event in others if isinstance(event, Notice)] == []
    assert chat.messages[0].content == "WAHT IS A DRAFTER?"
    stats = others[-1].stats
    second = chat.send("give an example")
    assert (stats.read_as, second.stats.read_as) == ("what is a drafter?", "")
    assert second.stats.cached_n >= stats.prompt_n + stats.predicted_n - 1


def test_an_answer_that_goes_on_is_that_of_the_question_as_it_was_read(plain):
    whole = said_to(plain, "WAHT IS A DRAFTER?")
    cut = plain.generate(asked("WAHT IS A DRAFTER?"), temperature=0, max_tokens=9).text
    turns = [*asked("WAHT IS A DRAFTER?"), {"role": "assistant", "content": cut}]
    rest = plain.stream(turns, temperature=0, continues=True)
    assert [event for event in rest if isinstance(event, Notice)] == []
    assert cut + rest.result().text == whole


def test_what_is_typed_can_be_left_as_it_is(plain):
    with localspec.load("guide", draft="off", threads=ONE, folding=False) as llm:
        answer = llm.generate(asked("WAHT IS A DRAFTER?"), temperature=0)
        assert answer.stats.read_as == ""
        assert answer.text != said_to(plain, "WAHT IS A DRAFTER?")
    raw = plain.generate("WAHT IS", temperature=0, max_tokens=3)
    assert raw.stats.read_as == ""


def test_run_says_on_stderr_how_it_read(localspec: Callable[..., tuple[int, str, str]]):
    asks = ("run", "guide", "waht is a drafer?", "--quant", "int8", "--threads", str(ONE))
    code, out, err = localspec(*asks)
    assert (code, complaints(err.encode())) == (0, ["info: Read as: what is a drafter?"])
    assert out.startswith("The drafter")
    code, other, err = localspec(*asks, "--no-folding")
    assert (code, complaints(err.encode())) == (0, [])
    assert other != out


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
            raise AssertionError(app.chat.state.phase)

        await pilot.press(*"What is a target?", "enter")  # typed while it loads: it waits and is answered
        await until(lambda: app.chat.state.phase == "idle" and len(app.chat.query(Answer)) == 1)
        assert "target" in app.chat.query(Answer).first().text
        os.kill(engines[0].pid, signal.SIGKILL)
        await until(lambda: app.chat.state.phase == "gone")
        await pilot.press("ctrl+r")
        await until(lambda: app.chat.state.phase == "idle")
        await pilot.press(*"thanks", "enter")
        await until(lambda: app.chat.state.phase == "idle" and len(app.chat.query(Answer)) == 2)
    for engine in engines:
        engine.close()
