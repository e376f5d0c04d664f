"""What is let go: all that was drawn of messages that are not there any more; and when: while nobody types."""

from __future__ import annotations

import gc
from asyncio import TimerHandle
from collections.abc import Callable, Iterator
from weakref import ref

import pytest
from textual.message_pump import MessagePump

from localspec.tui.terminal import collector as collecting
from localspec.tui.terminal.collector import MOST_REQUESTS
from localspec.tui.terminal.timer import once
from tests.support.chat_stage import HELLO, open_chat
from tests.support.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.heavy


async def test_nothing_is_kept_that_was_drawn_of_a_chat_that_was_left():
    """Textual would keep the lines of the last thousand widgets."""
    async with open_chat(ScriptedEngine(HELLO, HELLO)) as stage:
        await stage.asks("go", "Bye.", "idle")
        drawn = ref(stage.messages[0]._styles_cache)
        await stage.asks("/new", "Ask anything.")
        await stage.asks("again", "Bye.", "idle")
        await stage.until(lambda: drawn() is None)


class Rest:
    """In place of the clock: what waits for a rest, and a rest."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[tuple[TimerHandle, Callable[[], None]]] = []
        monkeypatch.setattr(collecting, "once", self.once)

    def once(self, pump: MessagePump, _seconds: float, call: Callable[[], None]) -> TimerHandle:
        self.waiting.append((once(pump, 3600, call), call))
        return self.waiting[-1][0]

    def comes(self) -> None:
        waited, self.waiting = self.waiting, []
        for timer, call in waited:
            if not timer.cancelled():
                call()


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Rest:
    return Rest(monkeypatch)


@pytest.fixture
def full() -> Iterator[list[str]]:
    """One entry for each full collection, with Python's thresholds those of the chat."""
    counted: list[str] = []

    def heard(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            counted.append(phase)

    before = gc.get_threshold()
    gc.set_threshold(*collecting.YOUNG, collecting.NEVER)
    gc.callbacks.append(heard)
    yield counted
    gc.callbacks.remove(heard)
    gc.set_threshold(*before)


@pytest.mark.slow
async def test_nothing_is_collected_while_somebody_types_or_pages_and_once_at_rest(rest: Rest, full: list[str]):
    async with open_chat(ScriptedEngine(HELLO, HELLO)) as stage:
        await stage.asks("go", "Bye.", "idle")
        for key in "typing":
            await stage.pilot.press(key, "pageup", "pagedown")
        assert not full
        assert len([timer for timer, _ in rest.waiting if not timer.cancelled()]) == 1
        rest.comes()
        assert len(full) == 1
        await stage.pilot.press("x")
        rest.comes()
        assert len(full) == 1, "there is nothing to let go"


async def test_nothing_is_collected_while_an_answer_is_written(rest: Rest, full: list[str]):
    engine = ScriptedEngine(HELLO, HELLO, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(3)
        await stage.send("go")
        await stage.sees("Hello there")
        stage.chat.collector.request()
        rest.comes()
        assert not full
        engine.permit(30)
        await stage.sees("Bye.", "idle")
        rest.comes()
        assert len(full) == 1


async def test_who_pages_on_and_on_is_interrupted_in_the_end(rest: Rest, full: list[str]):
    """Else all that was paged through would stay in memory."""
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        for _ in range(MOST_REQUESTS):
            stage.chat.collector.request()
        (due,) = [timer for timer, _ in rest.waiting if not timer.cancelled()]
        await stage.pilot.press("pageup")
        assert not due.cancelled()
        rest.comes()
        assert len(full) == 1
