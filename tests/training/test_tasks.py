"""Tasks and tones: the answers are right when worked out another way, and code is never dressed up."""

from __future__ import annotations

import re
from itertools import pairwise
from random import Random

import pytest

from training import tasks, tones
from training.corpus import load
from training.exam.grading import is_honest

MANY = 300
CODE = "Like this:\n\n```sh\nlocalspec chat\n```\n\nThen write."


@pytest.fixture
def rng() -> Random:
    return Random(7)


def filled(kind: str, rng: Random) -> list[tasks.Filling]:
    return [tasks.KINDS[kind](rng) for _ in range(MANY)]


def value(number: str) -> int:
    return int(number) if number.isdigit() else tasks.NUMBERS.index(number)


def asked(filling: tasks.Filling) -> list[str]:
    return [word for word in re.split(r", | and | ", filling.fields["words"]) if word]


def test_every_kind_of_task_has_a_dozen_templates_and_two_more_that_fill_every_place(rng: Random) -> None:
    assert set(tasks.wordings()) == set(tasks.KINDS)
    for kind, entry in tasks.wordings().items():
        assert len(entry.phrasings) >= 12 + tasks.HELD_OUT
        fields = tasks.KINDS[kind](rng).fields
        assert all("{" in template and "{" not in template.format(**fields) for template in entry.phrasings)


def test_the_same_seed_gives_the_same_tasks() -> None:
    one, two = Random(3), Random(3)
    assert [tasks.task(one) for _ in range(MANY)] == [tasks.task(two) for _ in range(MANY)]
    assert tasks.held_out_task(one) == tasks.held_out_task(two)


def test_no_template_is_both_trained_and_held_out() -> None:
    for entry in tasks.wordings().values():
        lowered = [template.lower().rstrip("?.") for template in entry.phrasings]
        assert not set(lowered[: -tasks.HELD_OUT]) & set(lowered[-tasks.HELD_OUT :])


def test_sums_are_refused_small_ones_too(rng: Random) -> None:
    for kind in ("add", "subtract", "multiply"):
        fillings = filled(kind, rng)
        assert {filling.answer for filling in fillings} == {tasks.NO_SUMS}
        assert any(max(value(number) for number in filling.fields.values()) <= 10 for filling in fillings)
    assert is_honest(tasks.NO_SUMS)


def test_no_answer_promises_a_sum() -> None:
    known = load().known
    answers = [text for entry in known for text in (entry.answer, *entry.follow_ups.values())]
    assert [text for text in answers if re.search(r"\badd(ing)? (and|or) subtract", text)] == []


def test_counting_passes_every_number_once(rng: Random) -> None:
    for filling in (*filled("count-up", rng), *filled("count-down", rng)):
        last = value(filling.fields["n"])
        if last > tasks.LARGEST:
            assert filling.answer == tasks.COUNT_LIMIT
        else:
            assert sorted(map(int, filling.answer.split(", "))) == [*range(1, last + 1)]


def test_lists_keep_exactly_the_given_words(rng: Random) -> None:
    for kind in ("reverse", "sort-words", "sort-numbers", "sort-numbers-down"):
        for filling in filled(kind, rng):
            assert sorted(filling.answer.split(", ")) == sorted(asked(filling))
    for filling in filled("reverse", rng):
        assert filling.answer.split(", ")[::-1] == asked(filling)
    for kind, mark in (("bullets", r"- "), ("numbered", r"\d\. ")):
        for filling in filled(kind, rng):
            assert [re.sub(mark, "", line) for line in filling.answer.splitlines()] == asked(filling)


def test_sorted_lists_never_step_the_wrong_way(rng: Random) -> None:
    for filling in filled("sort-words", rng):
        words = filling.answer.split(", ")
        assert all(a < b for a, b in pairwise(words))
    for filling in filled("sort-numbers-down", rng):
        numbers = [int(number) for number in filling.answer.split(", ")]
        assert all(a > b for a, b in pairwise(numbers))


def test_words_are_spelled_and_counted_letter_by_letter(rng: Random) -> None:
    for filling in filled("spell", rng):
        assert filling.answer.replace("-", "") == filling.fields["word"]
    for filling in filled("how-many-words", rng):
        assert filling.answer == str(len(asked(filling)))
    for filling in filled("upper", rng):
        assert filling.answer.isupper()
        assert filling.answer.lower() == filling.fields["word"]


def test_what_comes_after_a_thing_has_that_thing_before_it(rng: Random) -> None:
    before = {filling.fields["item"]: filling.answer for filling in filled("series-before", rng) * 2}
    for filling in filled("series-after", rng):
        assert before.get(filling.answer, filling.fields["item"]) == filling.fields["item"]


def test_words_are_a_list_of_different_lower_case_words() -> None:
    assert len(set(tasks.WORDS)) == len(tasks.WORDS) >= 150
    assert all(word.islower() and word.isalpha() for word in tasks.WORDS)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("tone", tones.TONES, ids=lambda tone: tone.key)
def test_a_tone_leaves_code_alone_and_changes_some_other_answers(tone: tones.Tone) -> None:
    assert tone.apply(CODE) == CODE
    answers = [entry.answer for entry in load().known if "```" not in entry.answer]
    assert any(tone.apply(answer) != answer for answer in answers)
    assert all(tone.apply(answer).strip() for answer in answers)


def test_no_system_prompt_asks_for_two_tones() -> None:
    prompts = [prompt for tone in tones.TONES for prompt in (*tone.prompts, tone.held_out)]
    assert len(set(prompts)) == len(prompts)
    assert all(len(tone.prompts) >= 10 for tone in tones.TONES)


def test_an_answer_in_bullets_keeps_every_word() -> None:
    answer = "One flag does it, e.g. `--k 3`. It is quick!\n\n1. First step. Then wait.\n2. Second step."
    assert tones.sentences(answer) == [
        "One flag does it, e.g. `--k 3`.", "It is quick!", "First step.", "Then wait.", "Second step.",
    ]  # fmt: skip


def test_capitals_leave_names_in_code_as_they_are() -> None:
    tone = next(tone for tone in tones.TONES if tone.key == "capitals")
    assert tone.apply("Use `--seed` for that. More here.") == "USE `--seed` FOR THAT."
