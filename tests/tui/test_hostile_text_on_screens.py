"""The doors that only an open screen has: what strangers wrote, in lists, forms, dialogs and the terminal's title.

All that the terminal is sent is looked through, so that nothing Textual does to a text on its way is left out (F1, F2).
"""

from __future__ import annotations

import io
import random
import re
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
from textual.widgets import OptionList

from localspec.cli.progress import ProgressBar
from localspec.cli.run import Output, show
from localspec.config.tables import Config, PresetTable
from localspec.core.events import AnyEvent, Failure, Loading, Notice, Ready, SpecCard
from localspec.core.requests import GenerateRequest
from localspec.history import SearchHit, StoredChat
from localspec.history.records import TextPart
from localspec.runtime import local_models
from localspec.runtime.local_models import ListedModel
from localspec.runtime.stream import Stream
from localspec.tui.app import ChatApp
from localspec.tui.chat.recorder import HistoryRecorder
from localspec.tui.control.tuning import Tuning
from localspec.tui.screens.compare import CompareScreen
from localspec.tui.screens.models import ModelsScreen
from localspec.tui.screens.overflow import Overflow
from localspec.tui.screens.sampling_form import SamplingForm
from localspec.tui.terminal.driver import TITLE
from tests.core.test_sanitize import FORBIDDEN, fuzzed
from tests.support.chat_stage import HELLO, Stage
from tests.support.scripted_engine import READY, ScriptedEngine, answer, step
from tests.tui.test_chat_hostile import ATTACKS, OWN_SEQUENCES, CapturingDriver

pytestmark = pytest.mark.heavy

OWN_TITLE = re.compile(re.escape(TITLE).replace(r"\{\}", r"([^\x07]*)"))
STORM = " ".join(("[/nope]", "e" + "\u0301" * 900, "\U0001f468\u200d" * 300, "\u200b" * 300))
TEXTS = pytest.mark.parametrize("text", [ATTACKS, STORM], ids=["attacks", "storm"])


class TitledDriver(CapturingDriver):
    """It has a title, as our own driver has."""

    def show_title(self, title: str) -> None:
        self.write(TITLE.format(title))


class Everything:
    """HistorySink that keeps chats: the sidebar has some to show."""

    def start(self, tell: object) -> None: ...

    def post(self, said: object) -> None: ...

    in_trouble = False

    def steps(self, message_id: int) -> tuple[()]:  # noqa: ARG002 - none is known
        return ()


@asynccontextmanager
async def watched(
    *scripts: Sequence[AnyEvent | None],
    text: str,
    opening: Sequence[AnyEvent | None] = (READY,),
    tuning: Tuning | None = None,
) -> AsyncIterator[Stage]:
    """A chat, and at its end the promise: what the terminal was sent has the text in it, and nothing to obey."""
    engine = ScriptedEngine(*scripts, opening=opening)
    app = ChatApp(lambda: engine, recorder=HistoryRecorder(Everything()), tuning=tuning)
    app.driver_class = TitledDriver
    chat = StoredChat("a1", text, text, text, text, text, text, 2, False, False, 2)
    hit = SearchHit("a1", text, 1, "user", text, (TextPart(text, False), TextPart(text, True)))
    app.chat.chats.store.chats = lambda limit: [chat]  # type: ignore[method-assign]  # noqa: ARG005
    app.chat.chats.store.find = lambda query: [hit]  # type: ignore[method-assign]  # noqa: ARG005
    async with app.run_test(size=(110, 40), headless=False) as pilot:
        stage = Stage(pilot, app, [])
        await stage.ready()
        yield stage
        for _ in range(3):
            await pilot.pause()
        written = "".join(app._driver.__dict__["written"])  # type: ignore[union-attr]
        assert not app.clipboard, "only a key copies"
    for title in OWN_TITLE.findall(written):
        assert FORBIDDEN.isdisjoint(title), ascii(title)
        assert "\n" not in title
    left = OWN_SEQUENCES.sub("", OWN_TITLE.sub("", written))
    assert "[/nope]" in left
    assert FORBIDDEN.isdisjoint(left.replace("\r", "")), sorted(FORBIDDEN & set(left))


@pytest.mark.sampled(2)
@TEXTS
async def test_titles_in_the_sidebar_and_in_what_it_asks(text: str):
    async with watched(text=text) as stage:
        await stage.pilot.press("ctrl+b")
        await stage.sees("[/nope]")
        await stage.pilot.press("delete")
        await stage.sees("Press Del again")
        await stage.pilot.press("r")
        await stage.until(lambda: stage.chat.sidebar.name_field.has_focus)
        await stage.pilot.press("escape", "slash", "x")
        await stage.until(lambda: stage.chat.sidebar.list.option_count == 2)
        await stage.sees("You: ")


@pytest.mark.sampled(2)
@TEXTS
async def test_titles_in_the_palette(text: str):
    async with watched(text=text) as stage:
        await stage.pilot.press("ctrl+p")
        await stage.pilot.press(*"nope")
        await stage.until(lambda: "Open this chat" in stage.seen)


@pytest.mark.sampled(2)
@TEXTS
async def test_models_and_drafters_to_choose_from(text: str, monkeypatch: pytest.MonkeyPatch):
    models = [ListedModel(text, text, 1, text, ((text, text), ("off", text)))]
    monkeypatch.setattr(local_models, "on_disk", lambda *_, **__: models)
    async with watched(text=text) as stage:
        await stage.send("/model")
        await stage.until(lambda: isinstance(stage.app.screen, ModelsScreen))
        await stage.until(lambda: stage.app.screen.query_one("#drafts", OptionList).option_count == 2)
        await stage.sees("[/nope]")


@pytest.mark.sampled(2)
@TEXTS
async def test_presets_to_choose_from(text: str):
    tuning = Tuning(Config(presets={text: PresetTable(temperature=1.0)}))
    async with watched(text=text, tuning=tuning) as stage:
        await stage.send("/preset")
        await stage.sees("[/nope]")
        await stage.send("/set")
        await stage.until(lambda: isinstance(stage.app.screen, SamplingForm))
        await stage.pilot.press("shift+tab", "enter")
        await stage.sees("[/nope]", "balanced")


@pytest.mark.sampled(2)
@TEXTS
async def test_two_answers_beside_each_other(text: str):
    opening = [Ready(READY.model, SpecCard("model", text, text), READY.memory)]
    sides = answer(step(text, accepted=0)), [Failure("engine", text, text)]
    async with watched(answer(step(text, accepted=0)), *sides, text=text, opening=opening) as stage:
        await stage.send(text)
        await stage.until(lambda: stage.chat.conversation.head and stage.chat.state.phase == "idle")
        await stage.pilot.press("f6")
        await stage.until(lambda: isinstance(stage.app.screen, CompareScreen))
        await stage.sees("Nothing was compared.", "[/nope]")


@pytest.mark.sampled(2)
@TEXTS
async def test_a_context_that_is_full(text: str):
    full = Failure("context_overflow", text, text, 5, turns_over=2)
    async with watched(HELLO, HELLO, [full], text=text) as stage:
        for _ in range(2):
            await stage.send("go")
            await stage.sees("idle")
        await stage.send("more")
        await stage.until(lambda: isinstance(stage.app.screen, Overflow))
        await stage.sees("Drop the oldest 2 turns, and don't ask", "[/nope]")


@pytest.mark.sampled(3)
@TEXTS
@pytest.mark.parametrize("command", ["theme", "draft", "preset", "set", "compare", "system", "nosuch"])
async def test_hints_and_notes_that_quote_a_command(text: str, command: str):
    async with watched(text=text) as stage:
        await stage.send(f"/{command} {text}")
        await stage.sees("[/nope]")


@pytest.mark.sampled(2)
@TEXTS
async def test_what_an_engine_says_beside_its_answer(text: str):
    notice = [*answer(step(text, accepted=0))[:-1], Notice("warning", text, text, text), Failure(text, text, text)]
    async with watched(notice, text=text, opening=[Loading(text, 1, 2), READY]) as stage:
        await stage.send(text)
        await stage.until(lambda: stage.chat.conversation.head and stage.chat.state.phase == "idle")
        await stage.sees("[/nope]")


# --- `localspec run`, whose terminal is the user's own


class Tty(io.StringIO):
    """Like a terminal, it cannot be written what no encoding has."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return super().write(text.encode().decode())


def pieces(texts: Sequence[str], seed: int) -> Iterator[AnyEvent]:
    """Rounds of tokens that end anywhere, notices among them."""
    rng = random.Random(seed)
    for text in texts:
        cut = rng.randint(0, len(text))
        yield step(text[:cut], text[cut:])
        if not rng.randrange(100):
            yield Notice("warning", "x", text, text)


def stream(said: Iterator[AnyEvent]) -> Stream:
    model: Any = SimpleNamespace(answer=lambda *_: chain(said, answer(step("x"))[-1:]))
    return Stream(model, GenerateRequest())


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_run_in_a_terminal(monkeypatch: pytest.MonkeyPatch, count: int):
    out, err = Tty(), Tty()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    texts = fuzzed(12, count)
    show(stream(pieces(texts, 1)), Output())
    with ProgressBar() as bar:
        bar.started = -10.0
        for text in texts[:1000]:
            bar.show(Loading(text, 1, 2))
    shown = out.getvalue(), err.getvalue().replace("\r\033[K", "")
    for written in shown:
        assert "[/nope]" in written
        assert FORBIDDEN.isdisjoint(written), sorted(FORBIDDEN & set(written))


def test_run_as_json_escapes_them(monkeypatch: pytest.MonkeyPatch):
    out = Tty()
    monkeypatch.setattr(sys, "stdout", out)
    events = list(pieces(fuzzed(13, 2000), 1))
    show(stream(iter(events)), Output(jsonl=True))
    assert len(out.getvalue().splitlines()) == len(events) + 1
    assert FORBIDDEN.isdisjoint(out.getvalue()), sorted(FORBIDDEN & set(out.getvalue()))
