"""When the screen is woken."""

from __future__ import annotations

import pytest

from localspec.core.events import AnyEvent, Failure
from localspec.tui.control.feed import Feed
from tests.support.scripted_engine import ScriptedEngine, answer, step

DONE = answer()[-1]


@pytest.mark.parametrize("end", [DONE, Failure("engine", "It failed."), None])
def test_what_ends_an_answer_does_not_wait_for_the_next_look(end: AnyEvent | None):
    woken = list[Feed]()
    feed = Feed(ScriptedEngine(), woken.append)
    for _ in range(3):
        feed._push(step("word", accepted=0))
    assert len(woken) == 1
    feed._push(end)
    assert len(woken) == 2
    assert len(feed.take()) == 4
