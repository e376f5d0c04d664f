"""An open chat for tests: keys go in, the screen comes out. No model, no clock, no sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from textual import events
from textual._styles_cache import StylesCache
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.message_pump import MessagePump
from textual.pilot import Pilot

from localspec.config.tables import ChatTable, Config, SendKey
from localspec.core.requests import Message
from localspec.history import NewChat, OpenChat, Writer
from localspec.tui.app import NO_LOOK, ChatApp
from localspec.tui.chat.conversation import turns
from localspec.tui.chat.recorder import HistoryRecorder, HistorySink
from localspec.tui.control.tuning import Tuning
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.themes import ThemeChoice
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.question import Question
from tests.support.scripted_engine import ScriptedEngine, answer, step

PATIENCE_SECONDS = 60  # a machine may be busy
HELLO = answer(step("Hello", " there", accepted=1), step(", world", "."), step(" Bye", "."))
RULES: dict[tuple[object, ...], list[RuleSet]] = {}
parse = Stylesheet._parse_rules


def parsed_once(sheet: Stylesheet, css: str, **source: Any) -> list[RuleSet]:
    """Every chat has the same styles, and reads them for a third of its start; nobody changes a rule that was read."""
    key = (css, *source.values(), frozenset(sheet._variables.items()))
    if key not in RULES:
        RULES[key] = parse(sheet, css, **source)
    return RULES[key]


def is_busy(pump: MessagePump) -> bool:
    """Whether it has been told something, or is not yet waiting to be."""
    told: Any = pump._message_queue.ready_event
    return told.is_set() or not told._waiters


async def busy_ones_rest(pilot: Pilot[Any], timeout: float = PATIENCE_SECONDS) -> bool:
    """Waits until everyone on the screen has done what they were told by now. Textual's own wakes them all, several
    times with each key: seventy widgets, of which three have heard of it."""
    app = pilot.app
    if app._exception_event.is_set() or not app.screen_stack:
        return False
    busy = [app, *(widget for widget in app.screen.walk_children(with_self=True) if is_busy(widget))]
    told = [done for pump in busy if pump.call_later((done := asyncio.Event()).set)]
    tasks = [asyncio.gather(*(done.wait() for done in told)), asyncio.ensure_future(app._exception_event.wait())]
    finished, _ = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    assert finished, "widgets do not answer"
    return all(done.is_set() for done in told)


@dataclass
class Stage:
    """An open chat and the engines it made, the newest last."""

    pilot: Pilot[None]
    app: ChatApp
    engines: list[ScriptedEngine]

    @property
    def chat(self) -> ChatScreen:
        return self.app.chat

    @property
    def engine(self) -> ScriptedEngine:
        return self.engines[-1]

    @property
    def messages(self) -> list[Question | Answer]:
        """Those in the transcript."""
        return [shown for shown in self.chat.transcript.children if isinstance(shown, Question | Answer)]

    @property
    def turns(self) -> list[Message]:
        """What the model is told was said."""
        return list(turns(self.chat.conversation.branch))

    @property
    def seen(self) -> str:
        """What is on the screen."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    async def until(self, predicate: Callable[[], object]) -> None:
        """Waits until it is true, and then until every widget has heard of it."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not predicate():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"never came true; the screen:\n{self.seen}") from None
        await self.pilot.pause()

    async def sees(self, *texts: str) -> None:
        await self.until(lambda: (seen := self.seen) and all(text in seen for text in texts))

    @property
    def hint(self) -> str:
        """What the state line shows, without its spaces: of a long one nobody knows where it breaks."""
        line = self.chat.status.region
        return "".join("".join(self.seen.splitlines()[line.y : line.bottom]).split())

    async def hints(self, text: str) -> None:
        await self.until(lambda: "".join(text.split()) in self.hint)

    async def write(self, text: str) -> None:
        self.app.post_message(events.Paste(text))
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        await self.write(text)
        await self.pilot.press("enter")

    async def asks(self, text: str, *answers: str) -> None:
        """Sends it, and sees these."""
        await self.send(text)
        await self.sees(*answers)

    async def begins(self, text: str) -> None:
        """Sends it to an engine that is paused, and sees the first words of HELLO: the others wait for a permit."""
        self.engine.permit(3)
        await self.asks(text, "Hello there")

    async def ready(self) -> None:
        await self.until(lambda: self.chat.state.phase == "idle")


def own_keys(keymap: Mapping[str, str], send_key: SendKey = "enter") -> Tuning:
    """The settings of a user with keys of their own."""
    return Tuning(Config(chat=ChatTable(send_key=send_key), keymap=dict(keymap)))


@asynccontextmanager
async def open_chat(
    *engines: ScriptedEngine,
    size: tuple[int, int] = (80, 24),
    system: str | None = None,
    sink: HistorySink | None = None,
    past: OpenChat | None = None,
    tuning: Tuning | None = None,
    looks: ThemeChoice = NO_LOOK,
    tooltips: bool = False,
) -> AsyncIterator[Stage]:
    """The given engines come in turn: the first at the start, the others at reloads. Without sink nothing is kept."""
    waiting, made = list(engines), []

    def make_engine() -> ScriptedEngine:
        made.append(waiting.pop(0))
        return made[-1]

    recorder = HistoryRecorder(sink, NewChat("guide", system=system))
    app = ChatApp(make_engine, system, recorder=recorder, past=past, tuning=tuning, looks=looks)
    with (
        patch.object(Stylesheet, "_parse_rules", parsed_once),
        patch.object(Pilot, "_wait_for_screen", busy_ones_rest),
        patch.object(RuleSet, "__hash__", object.__hash__),  # as Textual hashes them, without a call of Python's
        patch("localspec.tui.screens.overflow.REST_SECONDS", 0),
        patch("localspec.tui.screens.overflow.ALONE_SECONDS", 0),
    ):
        async with app.run_test(size=size, tooltips=tooltips, notifications=True) as pilot:
            stage = Stage(pilot, app, made)
            await stage.until(lambda: made)  # it is begun after the first frame
            yield stage
    StylesCache.get_inner_outer.cache_clear()  # it keeps what the last thousand widgets drew, those of other tests
    assert all(engine.closed for engine in made), "the app left an engine running"


@asynccontextmanager
async def scrolled_up() -> AsyncIterator[Stage]:
    """An answer of forty lines, of which thirty are written, and the end of them is out of sight."""
    engine = ScriptedEngine(answer(*(step(f"line {i}\n\n", accepted=0) for i in range(40))), paused=True)
    async with open_chat(engine) as stage:
        engine.permit(32)
        await stage.send("go")
        await stage.sees("line 29")
        await stage.pilot.press("pageup", "pageup")
        await stage.until(lambda: "line 29" not in stage.seen)
        yield stage


@asynccontextmanager
async def kept_chat(
    *engines: ScriptedEngine,
    size: tuple[int, int] = (80, 24),
    system: str | None = None,
    past: OpenChat | None = None,
    tuning: Tuning | None = None,
) -> AsyncIterator[Stage]:
    """The same, written into the history; all of it is there afterwards."""
    sink = Writer(chat=past.chat if past else None)
    async with open_chat(*engines, size=size, system=system, sink=sink, past=past, tuning=tuning) as stage:
        yield stage
    assert sink.close() is None
