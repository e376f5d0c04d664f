"""The chat's first frame: what `localspec chat` has imported when it is on the screen, and what only comes then."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from textual.widget import Widget

from localspec.history import Writer
from localspec.tui.screens.chat import ChatScreen
from tests.support.chat_stage import HELLO, kept_chat, open_chat
from tests.support.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.heavy

LATER = {"torch", "transformers", "numpy", "numba", "tokenizers", "psutil", "sqlite3", "tomlkit", "markdown_it"}
LATER |= {"pygments", "jinja2", "safetensors"}

START = """
import gc, json, sys
from localspec.cli.main import cli
from localspec.tui import app
from localspec.tui.screens.chat import ChatScreen

found = {}
draw = app.ChatApp._display

def display(self, screen, update):
    draw(self, screen, update)
    drawn = "".join(strip.text for strip in screen._compositor.render_strips())
    if "Ask anything" in drawn and not found:
        found["modules"] = sorted({name.partition(".")[0] for name in sys.modules})
        found["collects"] = gc.isenabled()
        self.exit()

app.ChatApp._display = display
ChatScreen.begin = lambda self: None
app.no_screen = lambda: ""
run = app.ChatApp.run
app.ChatApp.run = lambda self, **_: run(self, headless=True, size=({width}, 30))
cli.main(["chat"], standalone_mode=False)
sys.stderr.write(json.dumps(found))
"""


@pytest.fixture(scope="module", params=[100, 140])
def start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A real start, until the first frame is drawn; a wide one has the chats beside it."""
    folder = tmp_path_factory.mktemp("start")
    env = {f"LOCALSPEC_{name}_DIR": str(folder / name) for name in ("STATE", "DATA", "CONFIG", "CACHE")}
    program = [sys.executable, "-c", START.replace("{width}", str(request.param))]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env={"PATH": "", **env})
    found: dict[str, Any] = json.loads(done.stderr)
    return found


def test_the_first_frame_waits_for_no_engine_no_database_and_no_markdown(start: dict[str, Any]):
    assert LATER & set(start["modules"]) == set()


def test_what_is_imported_is_not_searched_for_garbage_and_what_comes_then_is(start: dict[str, Any]):
    assert start["collects"]


async def test_the_engine_and_the_history_begin_when_the_first_frame_is_drawn(monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []
    real = ChatScreen.begin

    def begin(self: ChatScreen) -> None:
        assert self.engine.feed is None
        seen.append("".join(strip.text for strip in self._compositor.render_strips()))
        real(self)

    monkeypatch.setattr(ChatScreen, "begin", begin)
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
    assert len(seen) == 1
    assert "Ask anything" in seen[0]


async def test_what_is_said_before_the_history_is_open_is_kept(monkeypatch: pytest.MonkeyPatch):
    """The writer is told of a question before its thread runs."""
    real = Writer.start
    started: list[object] = []
    monkeypatch.setattr(Writer, "start", lambda self, tell: started.append((self, tell)))
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.send("early")
        await stage.sees("Bye.", "idle")
        for writer, tell in started:  # type: ignore[misc]
            real(writer, tell)
    from localspec.history import History

    with History() as history:
        assert [said.content for said in history.open(history.latest().id).branch] == [
            "early",
            "Hello there, world. Bye.",
        ]


async def test_what_is_typed_before_the_first_frame_is_the_prompts(monkeypatch: pytest.MonkeyPatch):
    """Else it went into the search among the chats, which is the first field on the screen, or hidden."""
    focused: list[str | None] = []
    set_focus = ChatScreen.set_focus

    def heard(screen: ChatScreen, widget: Widget | None, scroll_visible: bool = True) -> None:
        focused.append(widget.id if widget else None)
        set_focus(screen, widget, scroll_visible)

    monkeypatch.setattr(ChatScreen, "set_focus", heard)
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        assert set(focused) == {"prompt"}
