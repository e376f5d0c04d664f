"""A question that stands alone is read alone; one that only the turns before it explain, with them."""

from __future__ import annotations

import pytest

from localspec.core.requests import Message
from localspec.models.follow_ups import is_follow_up, without_earlier_turns
from localspec.models.spelling import Folding, KnownWords


@pytest.mark.parametrize(
    "asked",
    [
        "why?",
        "and then?",
        "Does it cost memory?",
        "how do I turn that off",
        "give an example",
        "But what for?",
        "What’s it for?",
    ],
)
def test_what_refers_to_something_or_names_nothing_is_a_follow_up(asked: str):
    assert is_follow_up(asked)


@pytest.mark.parametrize(
    "asked",
    [
        "What is int8?",
        "How do I chat with another model?",
        "I have a laptop with eight gigabytes, and a big model on it: which format should I take?",
    ],
)
def test_what_names_its_subject_stands_alone(asked: str):
    assert not is_follow_up(asked)


def talk(*said: str) -> list[Message]:
    """The system prompt, then user and assistant in turn."""
    roles = ("system", *("user", "assistant") * len(said))
    return [Message(role, text) for role, text in zip(roles, said, strict=False)]


def test_only_a_follow_up_is_read_with_the_turns_before_it():
    alone = talk("Be brief.", "What is a draft?", "Tokens.", "What is int8?")
    assert without_earlier_turns(alone) == (alone[0], alone[3])
    follow_up = talk("Be brief.", "What is a draft?", "Tokens.", "Who writes it?")
    assert without_earlier_turns(follow_up) == tuple(follow_up)


def test_an_answer_that_goes_on_keeps_its_question():
    said = talk("Be brief.", "What is a draft?", "Tokens.", "What is int8?", "A format")
    assert without_earlier_turns(said) == (said[0], *said[3:])


@pytest.mark.parametrize("said", [[], talk("Be brief."), talk("Be brief.", "What is a draft?")[1:]])
def test_nothing_is_left_out_where_there_is_no_earlier_turn(said: list[Message]):
    assert without_earlier_turns(said) == tuple(said)


def test_a_model_has_all_turns_unless_its_table_says_otherwise():
    said = talk("Be brief.", "What is a draft?", "Tokens.", "What is int8?")
    assert Folding(KnownWords.parse("")).messages(said) == tuple(said)
    assert len(Folding(KnownWords.parse(""), alone=True).messages(said)) == 2
