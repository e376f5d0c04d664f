"""What the chat looks like, screen by screen. A change that is meant: make snapshots, and look at the difference."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest
from textual.widgets import Input

from localspec.core.events import Failure, Loading, ModelCard, Ready, Step
from localspec.history import Attachment, History, OpenChat, StoredChat, StoredMessage, Tree
from localspec.hub.queue import Download, kept_downloads
from localspec.hub.records import AskFit, AskSearch, FitFound, PullRequest, SearchPage
from localspec.runtime.local_models import UNREADABLE, ListedModel
from localspec.runtime.origins import ModelOrigin
from localspec.tui.screens.compare import CompareScreen
from localspec.tui.screens.models import ModelsScreen
from localspec.tui.screens.overflow import Overflow
from localspec.tui.screens.sampling_form import SamplingForm
from tests.support.chat_stage import Stage, kept_chat, open_chat
from tests.support.chats import chat
from tests.support.paced_hub import PacedHub
from tests.support.scripted_engine import READY, TEXT, ScriptedEngine, answer, rounds, step
from tests.support.scripted_hub import GB, a_fit
from tests.support.snapshots import check
from tests.tui.test_chat_hostile import ATTACKS
from tests.tui.test_models_screen import ROWS
from tests.tui.test_sidebar import dated

pytestmark = pytest.mark.heavy

QUESTION = "What is speculative decoding?"
THOUGHT = "<think>\nA small model proposes.\nThe large one verifies.\n</think>\n\nBoth."
OFF = (("off", "decode plain"),)
DRAFTS = (("auto", "layer 1"), ("small", "small, a model: guide-draft"), *OFF)
FULL = Failure("context_overflow", "The prompt is 8,609 tokens and the context holds 8,192.", "Shorten it.", 5, 3)


@pytest.fixture(autouse=True)
def one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever something was said."""
    monkeypatch.setattr("localspec.tui.transcript.speaker.clock", lambda at: at and "09:41")


async def shows(stage: Stage, name: str) -> None:
    """Nothing on the screen may depend on when it is looked at."""
    for field in (stage.chat.prompt, *stage.app.screen.query(Input)):
        field.cursor_blink = False
        field._cursor_visible = True
    await stage.pilot.pause()
    await stage.pilot.pause()
    check(stage.app, name)


async def told(stage: Stage, question: str = QUESTION) -> None:
    await stage.ready()
    await stage.send(question)
    await stage.until(lambda: stage.chat.conversation.head and stage.chat.state.phase == "idle")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "size", "keys"),
    [
        ("wide", (150, 36), ["f2"]),
        ("80 columns", (80, 24), []),
        ("60x16", (60, 16), []),
        ("tokens with rejected", (100, 30), ["shift+f3"]),
        ("speed panel over the chat", (90, 30), ["f2"]),
        ("speed panel at 80x16", (80, 16), ["f2"]),
    ],
)
async def test_an_answer(name: str, size: tuple[int, int], keys: list[str]):
    async with open_chat(ScriptedEngine(answer(*rounds(TEXT))), size=size) as stage:
        await told(stage)
        await stage.pilot.press(*keys)
        if "shift+f3" in keys:
            await stage.sees(" .6/.2›")  # once it is known how often it was explained
        await shows(stage, name)


async def test_an_answer_without_colours(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_chat(ScriptedEngine(answer(*rounds(TEXT))), size=(80, 24)) as stage:
        await told(stage)
        await stage.pilot.press("f3")
        await stage.sees("draft look-up bonus")
        await shows(stage, "monochrome")


async def test_loading():
    engine = ScriptedEngine(opening=[Loading("loading weights", 62, 100, eta_s=8.0), READY], paused=True)
    async with open_chat(engine) as stage:
        engine.permit(1)
        await stage.sees("62 %")
        await shows(stage, "loading")


async def test_empty():
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        await shows(stage, "empty")


async def test_the_help():
    async with open_chat(ScriptedEngine(), size=(80, 40)) as stage:
        await stage.ready()
        await stage.pilot.press("f1")
        await stage.sees("What you see", "Who wrote a token")
        await shows(stage, "help")


async def test_an_error():
    refused = Failure("does_not_fit", "Not enough memory for big.", "Try: --quant int8", exit_code=5)
    async with open_chat(ScriptedEngine(opening=[refused])) as stage:
        await stage.until(lambda: stage.chat.state.phase == "gone")
        await shows(stage, "error")


async def test_streaming():
    script = answer(*rounds(TEXT))
    engine = ScriptedEngine(script, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(30)
        await stage.send(QUESTION)
        await stage.sees("generating", "agreed")
        await shows(stage, "streaming")


async def test_a_thought_shut_and_open():
    async with open_chat(
        ScriptedEngine(answer(*(step(part + "\n", accepted=0) for part in THOUGHT.split("\n"))))
    ) as stage:
        await told(stage)
        await shows(stage, "thought")
        await stage.pilot.press("ctrl+t")
        await shows(stage, "thought open")


async def test_attachments():
    async with open_chat(ScriptedEngine(answer(step("Read.", accepted=0)))) as stage:
        await stage.ready()
        stage.chat.prompt.pills.add(Attachment("notes.md", text="x" * 1234))
        await told(stage, "What does it say?")
        stage.chat.prompt.pills.add(Attachment(None, text="y" * 3120))
        await shows(stage, "attachments")


async def test_a_full_context():
    engine = ScriptedEngine(*[answer(step("Yes.", accepted=0))] * 3, [FULL])
    async with open_chat(engine) as stage:
        for count in (2, 4, 6):
            await stage.ready()
            await stage.send("And?")
            await stage.until(lambda count=count: len(stage.turns) == count)
        await stage.send("And all of it?")
        await stage.until(lambda: isinstance(stage.app.screen, Overflow))
        await stage.sees("ctx –/8,192")  # figures follow twice a second
        await shows(stage, "full context")
        await stage.pilot.press("escape")


async def test_two_ways_compared():
    script = answer(*rounds(TEXT))
    words = [token for event in script if isinstance(event, Step) for token in event.tokens]
    other = [step(token.text, accepted=0) for token in words[:40]]
    async with open_chat(ScriptedEngine(script, answer(*other), script), size=(100, 30)) as stage:
        await told(stage)
        await stage.pilot.press("f6")
        await stage.until(lambda: isinstance(stage.app.screen, CompareScreen) and stage.app.screen.over)
        await shows(stage, "compare")


async def test_the_chats_beside_the_one_that_runs(monkeypatch: pytest.MonkeyPatch):
    class Today(date):
        @classmethod
        def today(cls) -> date:
            return date(2026, 3, 10)

    monkeypatch.setattr("localspec.tui.panels.sidebar.date", Today)
    noon = datetime(2026, 3, 10, 12).astimezone()
    with History() as history:
        for title, days in [("Regex help", 9), ("Trip notes", 1), ("Quicksort in Python", 0), ("[/nope]", 0)]:
            dated(chat(history, title)[0].chat_id, noon - timedelta(days=days))
        history.change(history.chats()[-1].id, pinned=True)
    async with kept_chat(ScriptedEngine(answer(*rounds(TEXT))), size=(150, 36)) as stage:
        await told(stage)
        await stage.sees("▸ What is speculative")
        await stage.pilot.press("ctrl+b")
        await stage.until(lambda: stage.chat.sidebar.list.has_focus)
        await shows(stage, "chats")


@pytest.fixture
def models_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its tabs show: models on disk, the hub's rows, downloads."""
    on_disk = [
        ListedModel("guide", "int8", 29_000_000, "fits well", DRAFTS, ModelOrigin("built in")),
        ListedModel(
            "Qwen/Qwen2.5-7B", "bf16", 15_200_000_000, "too large", OFF, ModelOrigin("Hugging Face", "a/b", "1a2b3c4d")
        ),
        ListedModel("ollama:qwen3:8b", "Q4_K_M", 5_200_000_000, "fits", OFF, ModelOrigin("Ollama")),
        ListedModel("/models/[/nope]", "–", 0, UNREADABLE, OFF, ModelOrigin("a folder")),
    ]
    monkeypatch.setattr("localspec.runtime.local_models.on_disk", lambda *_, **__: on_disk)
    monkeypatch.setattr(
        "localspec.tui.control.library.Library.free_words", lambda _: "RAM 22.1 GB free · disk 212.0 GB free"
    )
    PacedHub({AskSearch: [[SearchPage(ROWS)]], AskFit: [[FitFound(a_fit())]]}).install(monkeypatch)
    for item in downloads()[1:]:
        kept_downloads().put(item.key, item)


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("models_screen")
@pytest.mark.parametrize("size", [(120, 30), (80, 24)], ids=["120", "80"])
async def test_the_tabs_of_the_models_screen(size: tuple[int, int]):
    """On disk, the hub's rows before and after their headers are read, a download of every kind."""
    async with open_chat(ScriptedEngine(), size=size) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+o")
        await stage.sees("[/nope]", "disk 212.0 GB", "Downloads 4")
        await shows(stage, f"models on disk {size[0]}")
        await stage.pilot.press("2")
        await stage.sees("with 4,096 tokens")
        await shows(stage, f"models hub {size[0]}")
        screen = stage.app.screen
        assert isinstance(screen, ModelsScreen)
        queue = screen.downloads.queue
        queue._items = {item.key: item for item in downloads()}
        screen.follow()
        await stage.pilot.press("down", "3")
        await shows(stage, f"models downloads {size[0]}")


@pytest.mark.usefixtures("models_screen")
async def test_the_models_screen_without_colours(monkeypatch: pytest.MonkeyPatch):
    """The words alone say what fits, what is chosen and which download stands still."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_chat(ScriptedEngine(), size=(80, 24)) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+o")
        await stage.sees("[/nope]", "disk 212.0 GB", "Downloads 4")
        await shows(stage, "models on disk monochrome")
        await stage.pilot.press("2")
        await stage.sees("with 4,096 tokens")
        await shows(stage, "models hub monochrome")
        screen = stage.app.screen
        assert isinstance(screen, ModelsScreen)
        screen.downloads.queue._items = {item.key: item for item in downloads()}
        screen.follow()
        await stage.pilot.press("down", "3")
        await shows(stage, "models downloads monochrome")


def downloads() -> list[Download]:
    """One that runs, one that waits for the hub, one that was paused, one that failed; and one that is complete."""
    stall = "the hub stopped answering (30 s)"
    return [
        Download(PullRequest("org/done"), 0, "done", 4 * GB, 4 * GB),
        Download(
            PullRequest("org/model", draft="org/small"), 1, "downloading", 2 * GB, 4 * GB, "downloading", 88e6, 23
        ),
        Download(PullRequest("org/stalled"), 2, "retrying", GB, 4 * GB, reason=stall),
        Download(PullRequest("org/paused"), 3, "paused", GB, 4 * GB),
        Download(PullRequest("org/[/nope]"), 4, "failed", reason="There is no route to the hub."),
    ]


async def test_the_form_for_sampling():
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        await stage.send("/set")
        await stage.until(lambda: isinstance(stage.app.screen, SamplingForm))
        await stage.pilot.press("9", "9", "9")
        await shows(stage, "sampling")
        await stage.pilot.press("escape")


async def test_too_small():
    async with open_chat(ScriptedEngine(), size=(50, 12)) as stage:
        await stage.ready()
        await shows(stage, "too small")


async def test_a_hostile_title_and_model():
    said = (StoredMessage(1, "c", None, "user", ATTACKS, "done", "2026-01-01"),)
    hostile = StoredChat("c", ATTACKS, "2026-01-01", "2026-01-01", ATTACKS, None, None, 1, False, False, 1)
    opening = [Ready(ModelCard(ATTACKS, "int8", "cpu", 8192, True), READY.spec, READY.memory)]
    async with open_chat(ScriptedEngine(opening=opening), past=OpenChat(hostile, Tree(said))) as stage:
        await stage.ready()
        await shows(stage, "hostile title")
