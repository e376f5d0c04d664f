"""An answer that repeats itself is stopped, and goes on when it is asked to; one that was cut says how. No model."""

from __future__ import annotations

import pytest

from localspec.core.events import AnyEvent
from localspec.history import History, recall
from localspec.tui.chat.repetition import TIMES
from tests.support.chat_stage import kept_chat
from tests.support.scripted_engine import ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy

LINE = "I am a robot.\n"
WAYS_OUT = "Ctrl+R tries again, /set repetition_penalty=1.1 helps, Alt+C goes on anyway."
STOPPED = f"The answer repeats itself, so it was stopped. {WAYS_OUT}"
SIZE = (139, 30)  # its line is whole, and the chats are not there


def looping(times: int) -> list[AnyEvent]:
    return answer(*(step(LINE, accepted=0) for _ in range(times)))


async def test_an_answer_that_repeats_itself_is_stopped_and_goes_on_when_it_is_asked_to():
    """The history has it as one that ended; what goes on is not stopped for what it repeated already."""
    cut = answer(step("Red", accepted=0), finish="length")
    engine = ScriptedEngine(looping(40), looping(12), cut, paused=True)
    async with kept_chat(engine, size=SIZE) as stage:
        engine.permit(2 + TIMES)  # it is ready, and has read the prompt
        await stage.ready()
        await stage.asks("Who are you?", STOPPED)
        await stage.ready()
        said = stage.chat.conversation.last()
        assert said is not None
        assert said.text == TIMES * LINE
        assert said.made is not None
        assert said.made.stats.finish_reason == "stop"
        await stage.sees("stopped: it repeats itself · ")
        engine.permit(3)
        await stage.send("/continue")
        await stage.until(lambda: said.text == (TIMES + 1) * LINE)
        await stage.until(lambda: STOPPED not in stage.seen)
        engine.permit()
        await stage.until(lambda: said.text == (TIMES + 12) * LINE and stage.chat.state.phase == "idle")
        assert engine.requests[-1].continues
        assert STOPPED not in stage.seen, "it was not stopped again"
        assert "repeats itself" not in said.line
        await stage.send("Name a colour.")
        await stage.hints("The answer was cut after max_tokens. /continue goes on.")
    with History() as history:
        opened = history.open(history.chats()[0].id)
    assert [message.status for message in opened.branch if message.role == "assistant"] == ["done", "length"]


async def test_why_it_was_stopped_is_there_when_the_chat_is_opened_again():
    engine = ScriptedEngine(looping(40), paused=True)
    async with kept_chat(engine, size=SIZE) as stage:
        engine.permit(2 + TIMES)
        await stage.ready()
        await stage.asks("Who are you?", STOPPED)
        await stage.ready()
    async with kept_chat(ScriptedEngine(answer()), past=recall(), size=SIZE) as stage:
        await stage.sees("stopped: it repeats itself · ")
