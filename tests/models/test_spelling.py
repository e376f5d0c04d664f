"""What is typed to guide: read as words that it knows, or left as it is; and nobody reads it otherwise unseen."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec.bench.prompts import QUESTIONS
from localspec.cli.main import cli
from localspec.core.errors import CatalogError
from localspec.core.events import Notice, Stats
from localspec.core.paths import packaged
from localspec.core.requests import LoadRequest, Message
from localspec.history import Attachment, Generation
from localspec.models.spelling import LONGEST, READ_AS, Folding, KnownWords
from localspec.models.sums import is_sum
from localspec.runtime.stats import joined
from localspec.tui.chat.conversation import Utterance
from localspec.tui.chat.details import details
from localspec.tui.chat.report import answer_report
from localspec.tui.control.bench_run import arguments
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.markers import Note
from localspec.tui.transcript.question import Question
from tests.support.chat_stage import HELLO, open_chat
from tests.support.scripted_engine import ScriptedEngine
from training import corpus, words
from training.exam import questions as exam
from training.tasks import wordings

pytestmark = pytest.mark.heavy

COMMITTED = packaged("assets/guide/target/words.txt")
REFUSED = "a question about sums"
LIST = """\
# a remark
a
cache
config.toml
daft
draft
drafter
drafters
early
exit
how
int8
is
KV kv
localspec
Python python
speed
token
what What
what's

path PATH
the
trees
"""


@pytest.fixture(scope="module")
def small() -> Folding:
    return Folding(KnownWords.parse(LIST), REFUSED)


@pytest.fixture(scope="module")
def guide() -> Folding:
    return Folding.open(COMMITTED, REFUSED)


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("WHAT IS THE KV CACHE?", "what is the KV cache?"),
        ("HOW IS INT8?", "how is int8?"),
        ("EARLY-EXIT, HOW?", "early-exit, how?"),
        ("WHAT IS A DRAFTER'S SPEED", "what is a drafter's speed"),
        ("WHAT’S A TOKEN", "what's a token"),
        ("WHAT IS CONFIG.TOML", "what is config.toml"),
        ("WHAT IS ZANZIBAR", "what is zanzibar"),
        ("THE PATH", "the path"),
        ("SPEED", "speed"),
        ("what is a DRAFTER?", "what is a drafter?"),
    ],
)
def test_what_is_shouted_is_read_in_the_words_own_letters(small: Folding, typed: str, read: str):
    assert small.read(typed) == read


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("waht is a token", "what is a token"),
        ("Waht is a token", "What is a token"),
        ("the sped, how?", "the speed, how?"),
        ("what is lcoalspec", "what is localspec"),
        ("what is ocalspec", "what is localspec"),
        ("what is llocalspec", "what is localspec"),
        ("what is localspek", "what is localspec"),
        ("what is localspecs", "what is localspec"),
        ("(the pyhton cache)", "(the Python cache)"),
        ("what is Pyhton?", "what is Python?"),
        ("a drafetr's speed", "a drafter's speed"),
        ("erly-exit", "early-exit"),
        ("WAHT IS A TOKNE?", "what is a token?"),
    ],
)
def test_one_slip_in_a_word_is_read_as_the_word(small: Folding, typed: str, read: str):
    assert small.read(typed) == read


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "what is the KV cache?",
        "KV",
        "What is PATH?",
        "kv python",
        "teh a",  # too short to be sure of
        "what is a draftery",  # drafter or drafters
        "what is a drafters speed",
        "what is a tree's speed",  # trees would be another word
        "what is a treees speed",  # what nobody asks about
        "what is a Tokne",  # a name
        "what does `tokne` do",
        'what is "tokne" and “tokne”?',
        "what is 'tokne'",
        "what is --tokne",
        "what is -t",
        "what is /tokne or ./tokne or tokne/speed",
        "what is ~/TOKNE",
        "what is tokne.toml, NOTES.TXT or TOKNE_DIR",
        "what is @tokne",
        "what is tokne=3",
        "what is tokne8",
        "was ist spekulatives tokne dekodieren",  # most of it is not known
        "what\nis a tokne",
        "what is a tokne " * 20,
        "tokné",
    ],
)
def test_all_else_is_read_as_it_is(small: Folding, typed: str):
    assert small.read(typed) == typed


def test_a_folded_message_is_not_folded_again(guide: Folding):
    for question in ("WHAT IS LOCALSPEC?", "waht is a drafer", "hwo do i insatll it??"):
        assert guide.read(guide.read(question)) == guide.read(question) != question


def test_the_nearest_word_is_meant_and_none_of_two_that_are_as_near(small: Folding):
    """Letters that changed places or came twice are nearer than one that is missing, and that nearer than another."""
    assert [small.words.meant(word) for word in ("drafterr", "drafte", "drafterx")] == ["drafter", "drafter", None]


def test_only_the_user_is_read_otherwise(small: Folding):
    said = (
        Message("system", "WAHT"),
        Message("user", "WAHT IS"),
        Message("assistant", "WAHT"),
        Message("user", "waht"),
    )
    assert [one.content for one in small.messages(said)] == ["WAHT", "what is", "WAHT", "what"]


def test_an_attached_file_is_read_as_it_is(guide: Folding):
    said = Utterance(1, None, "user", "WAHT IS THIS", attachments=(Attachment("file", "NOTES.TXT", "WAHT"),))
    assert guide.read(said.for_model) == said.for_model


SUMS = (
    "4+4",
    "What is 4 + 4?",
    "4 + 4 =",
    "what is 1+1",
    "seven plus 2",
    "Hi, how much is 3 x 4 please?",
    "2 ** 3",
    "1/3",
)
OTHER_SUMS = ("WAHT IS 2 PLUS 2", "twenty-one minus one", "take 3 away from 9", "15 % of 80", "9 - 12")


@pytest.mark.parametrize("typed", SUMS + OTHER_SUMS)
def test_a_bare_sum_is_read_as_what_the_model_refuses(guide: Folding, typed: str):
    assert guide.read(typed) == REFUSED


PLUS = ("What is {a} + {b}?", "what is {a}+{b}", "{a}+{b}", "{a} plus {b}", "What is {a} plus {b}?")
MINUS = ("What is {a} - {b}?", "{a}-{b}", "{a} minus {b}", "What is {a} minus {b}?")


def test_every_small_sum_in_nine_wordings_is_read_so(guide: Folding):
    """231 pairs, nothing above 20; so the model meets one question, which test_guide.py asks it."""
    pairs = [(a, b) for a in range(21) for b in range(21 - a)]
    asked = [form.format(a=a, b=b) for a, b in pairs for form in PLUS]
    asked += [form.format(a=a + b, b=b) for a, b in pairs for form in MINUS]
    assert len(asked) == 231 * 9
    assert {guide.read(question) for question in asked} == {REFUSED}


@pytest.mark.parametrize("kind", ["add", "subtract", "multiply"])
def test_every_way_to_ask_for_a_sum_that_the_corpus_has_is_one(kind: str):
    asked = [form.format(a=7, b=2) for form in wordings()[kind].phrasings]
    assert [question for question in asked if not is_sum(question)] == []


@pytest.mark.parametrize(
    "typed",
    [
        "how much is 7 and 8?",
        "the total of 3 and 4",
        "hm, 4+4?",
        "my sum: 4+4",
        "I want to know 3+4",
        "do you know what 2+2 is?",
        "2+2 is 4, right?",
        "Work this out: 4 + 4",
        "Could you help me with 4+4?",
        "I wonder what 12 - 7 makes",
        "4k + 4k",
        "what is 4+4 squared?",
    ],
)
def test_a_sum_in_other_words_is_one(typed: str):
    """Read as it stands, each was answered with a wrong number, or with what guide cannot do."""
    assert is_sum(typed)


@pytest.mark.parametrize(
    "typed",
    [
        "count from 1 to 5",
        "do you know 3.11 and python?",
        "I want 3 or 4",
        "which is larger, 3 or 5?",
        "sort 3, 5, 1",
        "80x24",
        "3-4 tokens",
        "--k 4",
        "k=4",
        "is --k 2+1 right?",
        "python 3.11 or 3.12?",
        "what is 0.5?",
        "What is 2 times faster?",
        "What does 00003-of-00004 tell me?",
        "fifty-fifty, I would say",
        "a plus b",
        "",
    ],
)
def test_numbers_alone_make_no_sum(typed: str):
    assert not is_sum(typed)


@pytest.mark.parametrize("word", ["cups", "cloak", "codon", "courting", "angel", "auction", "garage", "committee"])
def test_an_ordinary_word_that_guide_has_no_use_for_is_no_slip(word: str, guide: Folding):
    """Read as cpus, clock, colon and counting, they were answered with what was not asked, and not refused."""
    question = f"What is {word}?"
    assert guide.read(question) == question


def test_without_another_wording_sums_are_read_as_they_are(guide: Folding):
    assert replace(guide, sums="").read("4+4") == "4+4"


# --- the words of guide


def test_the_committed_words_are_those_of_the_committed_corpus():
    """After a change of the corpus: python -m training.words assets/guide/target/words.txt"""
    assert COMMITTED.read_text(encoding="utf-8") == words.render(corpus.load())


def test_a_words_usual_spelling_is_not_the_one_that_begins_sentences():
    told = words.spellings(
        ["Acceptance is high. Acceptance", "The GPU", "a GPU or gpu, a Cache: what? Cache", "NDJSON"]
    )
    assert {word: told[word] for word in ("acceptance", "gpu", "cache", "ndjson", "the")} == {
        "acceptance": ["acceptance"],
        "gpu": ["GPU", "gpu"],
        "cache": ["Cache"],
        "ndjson": ["NDJSON"],
        "the": ["the"],
    }


def test_no_question_of_the_exam_is_read_otherwise(guide: Folding):
    """So its scores are those of the model alone, and so is every time that is measured; but for a newcomer's, who
    makes slips."""
    sat = exam.load()
    asked = [phrasing for question in (*sat.known, *sat.unknown) for phrasing in question.phrasings]
    assert [question for question in (*asked, *QUESTIONS) if guide.read(question) != question] == []


def test_hardly_a_question_of_the_corpus_is_read_otherwise_but_sums(guide: Folding):
    asked = [question for entry in corpus.load().known for question in entry.phrasings[::7]]
    assert [question for question in asked if guide.read(question) not in (question, REFUSED)] == []


def test_the_longest_message_takes_no_time_to_speak_of(guide: Folding):
    """Ten of the worst in a second: a hundred times what they take, and not the hours of a pattern that runs wild."""
    worst = (
        ("abcdefghijklmnop-" * 20)[:LONGEST],
        "'" * LONGEST,
        "(" * LONGEST,
        "a." * (LONGEST // 2),
        "7-" * (LONGEST // 2),
    )
    assert min(timed(guide, worst) for _ in range(3)) < 1


def timed(guide: Folding, messages: tuple[str, ...]) -> float:
    started = time.perf_counter()
    for message in messages * 2:
        guide.read(message)
    return time.perf_counter() - started


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, r"cannot be read \(No such file or directory\)"),
        (b"\xff", "is not UTF-8 text"),
        (b"a" * (1 << 20) + b"b", "is too large"),
    ],
)
def test_words_that_cannot_be_read_are_one_sentence(content: bytes | None, why: str, tmp_path: Path):
    if content is not None:
        (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(CatalogError, match=rf"words\.txt {why}.*in models\.toml, which names it"):
        Folding.open(tmp_path / "words.txt")


# --- what is seen of it


async def test_the_chat_keeps_what_was_typed_and_says_how_it_was_read():
    notice = Notice("info", READ_AS, "Read as: what is a drafter?")
    engine = ScriptedEngine([notice, *HELLO], HELLO)
    async with open_chat(engine) as stage:
        await stage.asks("waht is a drafer?", "waht is a drafer?", "Read as: what is a drafter?", "Bye.", "idle")
        assert [type(shown) for shown in stage.chat.transcript.children] == [Question, Note, Answer]
        assert stage.turns[0] == Message("user", "waht is a drafer?")
        await stage.asks("more", "more")
        assert engine.requests[1].messages[0] == Message("user", "waht is a drafer?")


async def test_a_comparison_says_nothing_of_it_in_the_chat():
    notice = Notice("info", READ_AS, "Read as: what is a drafter?")
    engine = ScriptedEngine([notice, *HELLO], [notice, *HELLO], [notice, *HELLO])
    async with open_chat(engine) as stage:
        await stage.asks("waht is a drafer?", "Bye.", "idle")
        await stage.pilot.press("f6")
        await stage.until(lambda: stage.chat.speculation.comparison is None and len(engine.requests) == 3)
        assert [type(shown) for shown in stage.chat.transcript.children] == [Question, Note, Answer]


def test_the_figures_of_an_answer_say_it_too():
    stats = Stats(predicted_n=3, read_as="what is a drafter?")
    assert "read as     what is a drafter?" in answer_report(stats).splitlines()
    assert "read as" not in answer_report(Stats(predicted_n=3))
    said = Utterance(2, 1, "assistant", "It drafts.", "guide", made=Generation("guide", stats=stats))
    assert "read as: what is a drafter?" in details(said)
    assert joined(stats, stats).read_as == "what is a drafter?"


def test_a_bench_from_the_chat_reads_as_the_chat_does():
    assert "--no-folding" in arguments(LoadRequest("guide", folding=False))
    assert "--no-folding" not in arguments(LoadRequest("guide"))


@pytest.mark.parametrize("name", ["chat", "run", "bench"])
def test_each_command_that_asks_a_model_has_the_switch(name: str):
    assert "--no-folding" in CliRunner().invoke(cli, [name, "--help"]).output
