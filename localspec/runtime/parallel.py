"""Answers to many requests, as many at once as there are slots. Knows no prompts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable
from typing import Self

from localspec.core.arguments import check
from localspec.core.errors import UsageError
from localspec.core.requests import GenerateRequest
from localspec.runtime.failures import failure
from localspec.runtime.result import Gathered
from localspec.runtime.slots import Slots

Numbered = tuple[int, Gathered]


class Answers:
    """The answers as they are ready, each with the number of its request. They go on in the thread that began them,
    and end with it; another is refused, and changes nothing."""

    def __init__(self, slots: Slots, requests: Iterable[GenerateRequest], cancelled: Callable[[], bool]) -> None:
        self._slots = slots
        self._found = answers(slots, requests, cancelled)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Numbered:
        self._slots.check_thread()
        return next(self._found)

    def close(self) -> None:
        """Ends what is under way. Twice does no harm."""
        self._slots.check_thread()
        self._found.close()


def answers(
    slots: Slots, requests: Iterable[GenerateRequest], cancelled: Callable[[], bool]
) -> Generator[Numbered, None, None]:
    is_left = False
    open_now: dict[int, Gathered] = {}
    asked = enumerate(requests)
    one = next(asked, None)
    try:
        while one is not None or open_now:
            while one is not None and (slots.has_free or not open_now):
                number, request = one
                open_now[number] = begun(slots, request, lambda: is_left or cancelled())
                one = None if cancelled() else next(asked, None)
            is_going = slots.step()  # else they were ended from elsewhere
            for number in [number for number, answer in open_now.items() if answer.is_over or not is_going]:
                yield number, open_now.pop(number)
            one = None if cancelled() else one
    finally:
        is_left = True  # where another thread drops them, they end at the next step
        while open_now and slots.answering and slots.is_here and not sys.is_finalizing() and slots.step():
            pass


def begun(slots: Slots, request: GenerateRequest, cancelled: Callable[[], bool]) -> Gathered:
    """An answer under way; of an invalid request only its error."""
    answer = Gathered()
    try:
        check("request", request, GenerateRequest)
    except UsageError as fault:
        answer.take(failure(fault))
    else:
        slots.start(request, answer.take, cancelled)
    return answer
