"""Shortens a conversation that is longer than the context: how many of its oldest turns must go.

Knows messages; how many tokens they are is asked of a function.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from localspec.core.requests import Message

ANSWER_SHARE = 4  # this fraction of the context is left to the answer, else it would be cut at once

RequestMessages = Sequence[Message]


def without_oldest(messages: RequestMessages, count: int) -> tuple[Message, ...]:
    """Drops the first turns; the system prompt and the last turn, which is the question, stay."""
    starts = [index for index, message in enumerate(messages) if message.role == "user"]
    if not starts:
        return tuple(messages)
    first = starts[min(count, len(starts) - 1)]
    return (*(message for message in messages[:first] if message.role == "system"), *messages[first:])


def remedies(turns_over: int, prompt_n: int, longest: int) -> str:
    """Remedies for a prompt that is too long: a new chat only if the question fits alone, and a longer context only if
    the prompt fits into the longest."""
    new_chat, longer = ["start a new chat"] * (turns_over > 0), [f"raise --ctx, up to {longest}"] * (prompt_n < longest)
    return f"{', or '.join(['Shorten it', *new_chat, *longer])}."


def turns_over(messages: RequestMessages, context: int, num_tokens: Callable[[RequestMessages], int]) -> int:
    """How many of the oldest turns must go for the rest to fit with an answer; 0 where no number would do."""
    most = sum(message.role == "user" for message in messages) - 1
    if most < 1 or num_tokens(without_oldest(messages, most)) >= context:
        return 0
    limit = context - context // ANSWER_SHARE
    return 1 + bisect_left(range(1, most), True, key=lambda count: num_tokens(without_oldest(messages, count)) <= limit)
