"""How many of the oldest turns must go, and what is left without them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from localspec.core.requests import Message
from localspec.runtime.truncation import turns_over, without_oldest

SYSTEM = Message("system", "brief")


def conversation(*lengths: int) -> list[Message]:
    """Turns of so many tokens, half of them the answer's; the last is the question, all of it."""
    *turns, question = lengths
    said = [Message(role, "x" * (length // 2)) for length in turns for role in ("user", "assistant")]  # type: ignore[arg-type]
    return [SYSTEM, *said, Message("user", "x" * question)]


def num_tokens(messages: Sequence[Message]) -> int:
    return sum(len(message.content) for message in messages)


def test_the_oldest_turns_go_and_the_system_stays_with_the_question():
    messages = conversation(2, 4, 6)
    assert without_oldest(messages, 0) == tuple(messages)
    assert without_oldest(messages, 1) == (SYSTEM, *messages[3:])
    assert without_oldest(messages, 2) == without_oldest(messages, 9) == (SYSTEM, messages[-1])
    assert without_oldest((SYSTEM,), 1) == (SYSTEM,)


@pytest.mark.parametrize(
    ("lengths", "turns"),
    [
        ((40, 40, 40, 10), 2),  # 5 + 40 + 10 leave a quarter of 100; with one more turn 95 would not
        ((10, 80, 10), 2),  # the first alone would not do
        ((20, 90), 1),  # the question fits, though it leaves the answer little
        ((20, 95), 0),  # the question alone does not fit
        ((120,), 0),  # there is no turn before it
    ],
)
def test_as_few_turns_go_as_leave_room_for_an_answer(lengths: tuple[int, ...], turns: int):
    assert turns_over(conversation(*lengths), 100, num_tokens) == turns


def test_the_fewest_turns_are_found_for_every_length():
    for count in range(2, 40):
        messages = conversation(*[10] * count, 5)
        fitting = [n for n in range(1, count + 1) if num_tokens(without_oldest(messages, n)) <= 75]
        assert turns_over(messages, 100, num_tokens) == fitting[0]
