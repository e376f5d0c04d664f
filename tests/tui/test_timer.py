"""Calls a while from now come, though the process sleeps meanwhile."""

from __future__ import annotations

import sys
from time import monotonic

import pytest
from textual import _time
from textual.timer import Timer

from localspec.config.tables import Config, EngineTable
from localspec.tui.control.tuning import Tuning
from localspec.tui.terminal.timer import once
from tests.support.chat_stage import open_chat
from tests.support.scripted_engine import ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy


@pytest.fixture(autouse=True)
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is stopped for a second whenever a timer of Textual's that calls once looks at the clock."""
    lost = 0

    def get_time() -> float:
        nonlocal lost
        timer = sys._getframe(1).f_locals.get("self")
        lost += isinstance(timer, Timer) and timer._repeat == 0
        return monotonic() + lost

    monkeypatch.setattr(_time, "get_time", get_time)


async def test_a_call_is_not_lost_when_the_process_was_stopped():
    """Textual's is, which is why there is `once`: should that come too, Textual has mended its timers."""
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        ours: list[str] = []
        theirs: list[str] = []
        stage.chat.set_timer(0.01, lambda: theirs.append("called"))
        once(stage.chat, 0.02, lambda: ours.append("called"))
        await stage.until(lambda: ours)
        assert not theirs


@pytest.mark.slow
async def test_an_answer_is_shown_though_the_process_is_stopped_again_and_again():
    """The feed wakes the screen once: a look at it that is lost would be the last."""
    engine = ScriptedEngine(answer(*(step(f"word{i} ", accepted=0) for i in range(12))), paused=True)
    async with open_chat(engine) as stage:
        engine.permit(2)
        await stage.send("go")
        for number in range(10):
            engine.permit(1)
            await stage.sees(f"word{number}")
        engine.permit()
        await stage.sees("word11", "idle")


async def test_a_chat_at_rest_frees_the_memory_though_the_process_slept():
    tuning = Tuning(Config(engine=EngineTable(idle_unload="1s")))
    async with open_chat(ScriptedEngine(), tuning=tuning) as stage:
        await stage.until(lambda: stage.chat.state.phase == "unloaded")


async def test_a_call_that_is_cancelled_does_not_come():
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        found: list[str] = []
        once(stage.chat, 0.01, lambda: found.append("cancelled")).cancel()
        once(stage.chat, 0.02, lambda: found.append("called"))
        await stage.until(lambda: found)
        assert found == ["called"]
