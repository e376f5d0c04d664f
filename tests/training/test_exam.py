"""The exam: it is large enough, its grading hears what an answer says, and nothing of it is trained on."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from localspec.core.errors import LocalspecError
from training.exam import questions
from training.exam.grading import HONEST, is_good, is_honest, is_nonsense, is_right, plain, says
from training.exam.overlap import leaks, runs
from training.exam.questions import Exam, Question, load, parse

pytestmark = pytest.mark.heavy

ADMITS = "I am a small built-in model and only know about localspec and speculative decoding, so I cannot answer that."
IS_ONE = {"chat/guide-what"}  # what admits so much answers who it is


@pytest.fixture(scope="module")
def exam() -> Exam:
    return load()


def phrasings(questions: tuple[Question, ...]) -> list[str]:
    return [phrasing for question in questions for phrasing in question.phrasings]


def test_it_is_as_large_as_was_promised(exam: Exam):
    assert len(exam.known) >= 150
    assert len(phrasings(exam.known)) >= 200
    assert len(exam.unknown) >= 100
    assert len(phrasings(exam.newcomer)) == 100


def test_a_newcomer_asks_what_cannot_be_known_greets_and_asks_on(exam: Exam):
    beyond = [question for question in exam.newcomer if not question.required]
    assert len(beyond) >= 10
    assert len([question for question in exam.newcomer if question.earlier]) >= 15
    assert len([question for question in exam.newcomer if question.key.startswith("talk/")]) >= 5


def test_every_subject_has_its_share(exam: Exam):
    subjects = [question.key.partition("/")[0] for question in exam.known]
    least = {"product": 55, "chat": 35, "speculation": 45, "machine": 45}
    assert set(subjects) == set(least)
    assert {subject for subject in least if subjects.count(subject) < least[subject]} == set()


def test_every_known_question_has_one_to_three_required_and_at_most_two_forbidden(exam: Exam):
    assert {len(question.required) for question in exam.known} <= {1, 2, 3}
    assert {len(question.forbidden) for question in exam.known} == {0, 1, 2}


def test_nothing_is_required_that_is_forbidden(exam: Exam):
    for question in exam.questions:
        for wordings in question.required:
            spoilt = [any(says(words, taboo) for taboo in question.forbidden) for words in wordings]
            assert not any(spoilt), question.key


def test_every_string_of_the_exam_says_something(exam: Exam):
    strings = [words for question in exam.questions for wordings in question.required for words in wordings]
    strings += [words for question in exam.questions for words in question.forbidden]
    assert [words for words in strings if not says(f"It is: {words}.", words)] == []


@pytest.mark.parametrize("answer", ["", "Yes.", "No.", "It depends.", ADMITS, " ".join(HONEST)])
def test_an_answer_that_says_nothing_is_right_nowhere(exam: Exam, answer: str):
    answerable = [question for question in exam.questions if question.required]
    assert {question.key for question in answerable if is_right(answer, question)} <= IS_ONE


STOP = Question("stop", ("stop key?",), (("Esc",),))


def test_good_is_right_where_something_can_be_known_and_else_honest():
    assert is_good("Press Esc.", STOP)
    assert not is_good(ADMITS, STOP)
    assert is_good(ADMITS, Question("peru", ("capital of Peru?",)))
    assert not is_good("Lima.", Question("peru", ("capital of Peru?",)))


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Press the key that is",
        "The draft is a draft. It is short. The draft is a draft.",
        "the draft:\n" * 8,
        "a draft of the draft " * 10,
    ],
)
def test_an_answer_that_repeats_itself_or_breaks_off_is_nonsense(answer: str):
    assert is_nonsense(answer, STOP)
    assert not is_nonsense(f"{answer} Esc", STOP)
    assert not is_nonsense(f"{ADMITS} {answer}", STOP)


@pytest.mark.parametrize(
    "answer", ["Press F3.", "Is it F3?", "Type `localspec chat`", "It is **off**", "It said “no”", ADMITS]
)
def test_a_whole_answer_that_is_wrong_is_not_nonsense(answer: str):
    assert not is_nonsense(answer, STOP)


def test_required_and_forbidden_decide():
    question = Question("stop", ("stop key?",), (("Esc", "escape"), ("stop",)), ("Ctrl+Q",))
    assert is_right("Press Esc: it stops the answer.", question)
    assert is_right("ESCAPE\n   stops it", question)
    assert not is_right("Press Esc.", question)
    assert not is_right("It stops.", question)
    assert not is_right("Esc stops, as Ctrl+Q does.", question)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("Use **`--draft off`**.", "--draft off"),
        ("set `LOCALSPEC_CACHE_DIR`", "LOCALSPEC_CACHE_DIR"),
        ("a *draft\n  model*", "draft model"),
        ("Early-Exit", "early-exit"),
        ("accepted", "accept"),
        ("memory-bound", "bound"),
        ("up to 16.", "16"),
        ("0–16 tokens", "16"),
        ("it’s so, I don’t know", "I don't know"),
        ('`load("guide")`', "load("),
        ("Enter\u00a0sends", "Enter sends"),
        ("2\u2009× as fast", "2"),
    ],
)
def test_what_an_answer_says(answer: str, words: str):
    assert says(answer, words)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("note this", "no"),
        ("it runs", "run"),
        ("2.5", "2"),
        ("0.2", "2"),
        ("128", "2"),
        ("int4", "4"),
        ("1,204", "204"),
        ("--stats", "-s"),
        ("a subtoken", "token"),
        ("top_k", "top k"),
        ("", "token"),
    ],
)
def test_what_an_answer_does_not_say(answer: str, words: str):
    assert not says(answer, words)


@pytest.mark.parametrize("words", HONEST)
def test_each_of_the_fixed_markers_is_honest(words: str):
    assert is_honest(f"Sorry, **{words}**.")
    assert is_honest(words.upper())


@pytest.mark.parametrize("answer", ["", "Lima.", "I know that one: it is Lima.", "The answer is in localspec."])
def test_a_guess_is_not_honest(answer: str):
    assert not is_honest(answer)


def test_plain_keeps_what_stands_inside_a_word():
    assert plain("**Use** `top_k`,\n  __not__ 2*3 …") == "use top_k, not 2*3 …"


GOOD = "# a\n? how does it go\n= well\n"


def test_a_file_is_read_as_written():
    text = f"{GOOD}\n# b\n? one\n? two words\n= x | y z\n= w\n! v\n"
    assert parse(text, "known.md") == (
        Question("a", ("how does it go",), (("well",),)),
        Question("b", ("one", "two words"), (("x", "y z"), ("w",)), ("v",)),
    )
    assert parse("# a\n? why\n", "unknown.md", answerable=False) == (Question("a", ("why",)),)


def test_a_question_may_follow_another():
    follows = "# a\n> what is it\n? and then\n= so\n"
    assert parse(follows, "known.md") == (Question("a", ("and then",), (("so",),), earlier="what is it"),)
    asked = Exam(parse(follows, "known.md"), (), parse(follows, "newcomer.md"))
    assert asked.earlier == ("what is it",)
    assert asked.phrasings == ("and then", "and then")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (GOOD + "* so\n", "known.md:4: '* so' does not begin with '# ', '> ', '? ', '= ' or '! '."),
        (GOOD + "=so\n", "known.md:4: '=so' does not begin with '# ', '> ', '? ', '= ' or '! '."),
        (GOOD + "! \n", "known.md:4: '! ' does not begin with '# ', '> ', '? ', '= ' or '! '."),
        ("\n? why\n" + GOOD, "known.md:2: a phrasing stands before the first '# key'."),
        (GOOD + "# b\n= so\n", "known.md:4: 'b' has no phrasing; write one as '? How does it work?'."),
        (GOOD + "# b\n? why\n", "known.md:4: 'b' has 0 required strings, not 1 to 3."),
        (GOOD + "# b\n? why\n" + "= so\n" * 4, "known.md:4: 'b' has 4 required strings, not 1 to 3."),
        (GOOD + "# b\n? why\n= so\n" + "! no\n" * 3, "known.md:4: 'b' has 3 forbidden strings, not 0 to 2."),
        (GOOD + "# b\n> a\n> b\n? why\n= so\n", "known.md:4: 'b' has 2 earlier questions, not 0 or 1."),
        (GOOD + "# b\n? why\n= so | | thus\n", "known.md:4: 'b' has an empty alternative in '= so | | thus'."),
        (GOOD + "# A\n? why\n= so\n", "known.md:4: 'A' is already in 'a'."),
        (GOOD + "# b\n? How  does it GO\n= so\n", "known.md:5: 'How  does it GO' is already in 'a'."),
        ("# a\n? why\n? why\n= so\n", "known.md:3: 'why' is already in 'a'."),
    ],
)
def test_a_malformed_exam_is_one_sentence_with_its_line(text: str, sentence: str):
    with pytest.raises(LocalspecError) as caught:
        parse(text, "known.md")
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file or directory"), (b"\xff", "it is not UTF-8 text")]
)
def test_a_file_that_cannot_be_read_is_one_sentence(
    content: bytes | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(questions, "FOLDER", tmp_path)
    (tmp_path / "known.md").write_text(GOOD, encoding="utf-8")
    if content is not None:
        (tmp_path / "unknown.md").write_bytes(content)
    with pytest.raises(LocalspecError) as caught:
        load()
    assert str(caught.value) == f"The exam file {tmp_path / 'unknown.md'} cannot be read ({reason})."


def test_nobody_can_know_a_required_string_of_an_unknown_question():
    with pytest.raises(LocalspecError, match=r"^unknown\.md:1: 'a' has a required string, but no known answer"):
        parse(GOOD, "unknown.md", answerable=False)


def test_no_question_is_asked_twice(exam: Exam):
    """Within a file the reader refuses it; here, across all."""
    everything = [" ".join(question.lower().split()) for question in exam.phrasings]
    assert len(set(everything)) == len(everything)


# --- what is trained on


@cache
def trained() -> tuple[str, ...]:
    from training import corpus, dialogue

    return dialogue.trained_questions(corpus.load())


def test_runs_are_three_words_and_few_words_are_one_run():
    assert runs("What's a draft_model, then?") == {("what's", "a", "draft_model"), ("a", "draft_model", "then")}
    assert runs("Stop key?") == {("stop", "key")}


def test_more_than_half_of_a_question_in_one_other_is_a_leak():
    asked = "how do I turn the drafting off"  # five runs
    assert [str(leak) for leak in leaks([asked], ["So HOW do i turn the drafting on?"])] == [
        f"80% of '{asked}' is in 'So HOW do i turn the drafting on?'"
    ]
    assert list(leaks([asked], ["do I turn the lamp off", "turn the drafting off"])) == []
    assert list(leaks(["one two three four"], ["one two three"])) == []  # half is not more than half
    assert [leak.share for leak in leaks(["Stop key?"], ["stop", "the stop key", "STOP KEY"])] == [1.0]
    assert list(leaks(["Stop key?"], ["the stop key is Esc"])) == []


@pytest.mark.slow
def test_a_leak_into_the_corpus_would_be_found(exam: Exam):
    """Each question, put among what is trained, whole and with other words around it."""
    asked = exam.phrasings
    assert {leak.asked for leak in leaks(asked, (*trained(), *asked))} == set(asked)
    longer = [f"well then, {question} please" for question in asked if len(runs(question)) > 1]
    assert len({leak.asked for leak in leaks(asked, longer)}) == len(longer)


def test_no_question_of_the_exam_is_trained_on(exam: Exam):
    assert [str(leak) for leak in leaks(exam.phrasings, trained())] == []


def test_no_answer_that_is_taught_would_pass_for_nonsense():
    from training import corpus

    answers = [text for entry in corpus.load().known for text in (entry.answer, *entry.follow_ups.values())]
    assert len(answers) > 500
    asked = Question("a", ("why",), (("what no answer has",),))
    assert sum(is_nonsense(answer, asked) for answer in answers) == 0


def refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said before anything is trained or kept."""
    from training import __main__ as recipe

    monkeypatch.setattr(recipe, "Training", None)  # who calls it fails at once instead of training for two hours
    with pytest.raises(LocalspecError) as fault:
        recipe.run(recipe.Options(folder / "out"))
    assert not (folder / "out").exists()
    return str(fault.value)


@pytest.mark.slow
def test_a_leak_stops_the_training_before_it_begins(exam: Exam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from training import corpus

    text, asked = corpus.load(), exam.known[3].phrasings[0]
    entry = replace(text.known[0], phrasings=(asked, *text.known[0].phrasings))
    monkeypatch.setattr(corpus, "load", lambda: replace(text, known=(entry, *text.known[1:])))
    said = refused(tmp_path, monkeypatch)
    assert said.startswith(f"The exam leaks into the corpus: 100% of '{asked}' is in ")
    assert said.endswith("Take that question out of the corpus.")


def test_a_corpus_file_that_cannot_be_parsed_stops_the_training_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from training import corpus

    shutil.copytree(corpus.FOLDER, tmp_path / "corpus")
    monkeypatch.setattr(corpus, "FOLDER", tmp_path / "corpus")
    with (tmp_path / "corpus" / "talk.md").open("a") as file:
        file.write("\n# one-more\nAn answer to nothing.\n")
    said = refused(tmp_path, monkeypatch)
    assert re.fullmatch(r"talk\.md:\d+: 'one-more' has no phrasing; write one as '\? How does it work\?'\.", said)
