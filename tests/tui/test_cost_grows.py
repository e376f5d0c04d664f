"""What a long chat costs over what a short one does: calls of functions, which nothing else disturbs.

The test prints its ratio, and that of the thread's processor time beside it: pytest -s -m slow.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import thread_time

import pytest

from localspec.core.events import Stats
from localspec.history import Generation, OpenChat, StoredChat, StoredMessage, Tree
from tests.support.chat_stage import Stage, open_chat
from tests.support.scripted_engine import ScriptedEngine

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

PROSE = "Drafts are **checked** in one pass, and what is wrong is thrown away, so that the text stays the same.\n\n"
LIST = "".join(f"- item {i} of a list, with `code` in it\n" for i in range(6)) + "\n"


@dataclass
class Cost:
    """Of the screen's own thread."""

    calls: int = 0
    seconds: float = 0.0

    def over(self, other: Cost) -> float:
        print(f"\nratio of calls {self.calls / other.calls:.2f}, of time {self.seconds / other.seconds:.2f}")
        return self.calls / other.calls


@contextmanager
def counted(cost: Cost) -> Iterator[None]:
    def count(_frame: object, event: str, _argument: object) -> None:
        cost.calls += event == "call"

    before = thread_time()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
        cost.seconds += thread_time() - before


def past(count: int) -> OpenChat:
    said = []
    for number in range(1, count + 1):
        who, made = ("user", None) if number % 2 else ("assistant", Generation("guide", stats=Stats()))
        text = PROSE if number % 2 else PROSE + LIST
        said.append(StoredMessage(number, "c", number - 1 or None, who, text, "done", "", generation=made))  # type: ignore[arg-type]
    return OpenChat(
        StoredChat("c", "a chat", "", "", "guide", None, None, count, False, False, count), Tree(tuple(said))
    )


@asynccontextmanager
async def chat_of(count: int) -> AsyncIterator[Stage]:
    async with open_chat(ScriptedEngine(), past=past(count), size=(150, 36)) as stage:
        await stage.ready()
        await stage.pilot.press("a")
        yield stage


async def test_a_key_in_a_chat_of_a_thousand_messages_costs_no_more_than_in_one_of_ten():
    costs = Cost(), Cost()
    for cost, count in zip(costs, (10, 1000), strict=True):
        async with chat_of(count) as stage:
            with counted(cost):
                await stage.pilot.press(*"what does a key cost")
            await stage.sees("what does a key cost")
    few, many = costs
    assert many.over(few) < 1.5  # more of them are in the window
