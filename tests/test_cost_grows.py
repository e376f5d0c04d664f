"""What a long answer and a long chat cost, over what short ones do: calls of functions, which nothing else disturbs.

Each test prints its ratio, and that of the thread's processor time beside it: pytest -s -m slow.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import thread_time

import pytest

from localspec.events import Stats, Step
from localspec.history import Chat, Generation, OpenChat, StoredMessage, Tree
from localspec.tui.message import Answer
from tests.chat_stage import Stage, open_chat
from tests.scripted_engine import ScriptedEngine, step

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

SHORT, LONG, WINDOW = 500, 10_000, 240  # tokens
PROSE = "Drafts are **checked** in one pass, and what is wrong is thrown away, so that the text stays the same.\n\n"
LIST = "".join(f"- item {i} of a list, with `code` in it\n" for i in range(6)) + "\n"
CODE = "```python\n" + "".join(f"value_{i} = compute({i})  # step {i}\n" for i in range(500)) + "```\n\n"


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


def tokens() -> Iterator[Step]:
    """Prose and lists, then a code block of 500 lines, then prose and lists without end."""
    text = (PROSE + LIST) * 12 + CODE
    while True:
        words = text.replace(" ", " \0").replace("\n", "\n\0").split("\0")
        for at in range(0, len(words), 4):
            yield step(*words[at : at + 4], accepted=None if len(words[at : at + 4]) > 1 else 0)
        text = PROSE + LIST


async def written(stage: Stage, shown: Answer, source: Iterator[Step], count: int, *, at_once: int = 8) -> int:
    """So many tokens, of which every frame shows a few."""
    done = waiting = 0
    while done < count:
        said = next(source)
        shown.add(said)
        done, waiting = done + len(said.tokens), waiting + len(said.tokens)
        if waiting >= at_once:
            waiting = 0
            await shown.flush()
            shown.follow_rounds()
            await stage.pilot.pause()
    return done


@pytest.mark.parametrize("in_code", [False, True])
async def test_a_token_behind_ten_thousand_costs_no_more_than_one_behind_five_hundred(in_code: bool):
    source, early, late = tokens(), Cost(), Cost()
    async with open_chat(ScriptedEngine(), size=(130, 36)) as stage:
        shown = Answer("guide")
        await stage.chat.show(shown)
        done = await written(stage, shown, source, SHORT, at_once=100)
        with counted(early):
            done += await written(stage, shown, source, WINDOW)
        if in_code:
            while not shown.passages.in_code:
                done += await written(stage, shown, source, 20, at_once=20)
            done += await written(stage, shown, source, 1500, at_once=100)
            assert shown.passages.in_code
        else:
            done += await written(stage, shown, source, LONG - done, at_once=100)
            assert not shown.passages.in_code
        with counted(late):
            done += await written(stage, shown, source, WINDOW)
        await shown.end()
    assert late.over(early) < 1.5


def past(count: int) -> OpenChat:
    said = []
    for number in range(1, count + 1):
        who, made = ("user", None) if number % 2 else ("assistant", Generation("guide", stats=Stats()))
        text = PROSE if number % 2 else PROSE + LIST
        said.append(StoredMessage(number, "c", number - 1 or None, who, text, "done", "", generation=made))  # type: ignore[arg-type]
    return OpenChat(Chat("c", "a chat", "", "", "guide", None, None, count, False, False, count), Tree(tuple(said)))


@asynccontextmanager
async def chat_of(count: int) -> AsyncIterator[Stage]:
    async with open_chat(ScriptedEngine(), past=past(count), size=(130, 36)) as stage:
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
