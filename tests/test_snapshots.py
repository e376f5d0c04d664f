"""What the chat looks like, screen by screen. A change that is meant: make snapshots, and look at the difference."""

from __future__ import annotations

import pytest

from localspec.events import Failure, Loading, ModelCard, Ready
from localspec.history import Attachment, Chat, OpenChat, StoredMessage, Tree
from localspec.tui.overflow import Overflow
from tests.chat_stage import Stage, open_chat
from tests.scripted_engine import READY, TEXT, ScriptedEngine, answer, rounds, step
from tests.snapshots import check
from tests.test_chat_hostile import ATTACKS

pytestmark = pytest.mark.heavy

QUESTION = "What is speculative decoding?"
THOUGHT = "<think>\nA small model proposes.\nThe large one verifies.\n</think>\n\nBoth."
FULL = Failure("context_overflow", "The prompt is 8,609 tokens and the context holds 8,192.", "Shorten it.", 5, 3)


async def shows(stage: Stage, name: str) -> None:
    """Nothing on the screen may depend on when it is looked at."""
    stage.chat.prompt.cursor_blink = False
    stage.chat.prompt._cursor_visible = True
    await stage.pilot.pause()
    await stage.pilot.pause()
    check(stage.app, name)


async def told(stage: Stage, question: str = QUESTION) -> None:
    await stage.ready()
    await stage.send(question)
    await stage.until(lambda: stage.chat.conversation.history and stage.chat.phase == "idle")


@pytest.mark.parametrize(
    ("name", "size", "keys"),
    [
        ("wide", (130, 36), []),
        ("80 columns", (80, 24), []),
        ("60x16", (60, 16), []),
        ("tokens with rejected", (100, 30), ["shift+f3"]),
        ("speed panel over the chat", (90, 30), ["f2"]),
    ],
)
async def test_an_answer(name: str, size: tuple[int, int], keys: list[str]):
    async with open_chat(ScriptedEngine(answer(*rounds(TEXT))), size=size) as stage:
        await told(stage)
        await stage.pilot.press(*keys)
        await shows(stage, name)


async def test_an_answer_without_colours(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_chat(ScriptedEngine(answer(*rounds(TEXT))), size=(80, 24)) as stage:
        await told(stage)
        await stage.pilot.press("f3")
        await shows(stage, "monochrome")


async def test_loading():
    engine = ScriptedEngine(opening=[Loading("weights", 62, 100, eta_s=8.0), READY], paused=True)
    async with open_chat(engine) as stage:
        engine.permit(1)
        await stage.sees("62 %")
        await shows(stage, "loading")


async def test_empty():
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        await shows(stage, "empty")


async def test_an_error():
    refused = Failure("does_not_fit", "Not enough memory for big.", "Try: --quant int8", exit_code=5)
    async with open_chat(ScriptedEngine(opening=[refused])) as stage:
        await stage.until(lambda: stage.chat.phase == "gone")
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
            await stage.until(lambda count=count: len(stage.chat.conversation.history) == count)
        await stage.send("And all of it?")
        await stage.until(lambda: isinstance(stage.app.screen, Overflow))
        await shows(stage, "full context")
        await stage.pilot.press("escape")


async def test_too_small():
    async with open_chat(ScriptedEngine(), size=(50, 12)) as stage:
        await stage.ready()
        await shows(stage, "too small")


async def test_a_hostile_title_and_model():
    said = (StoredMessage(1, "c", None, "user", ATTACKS, "done", "2026-01-01"),)
    chat = Chat("c", ATTACKS, "2026-01-01", "2026-01-01", ATTACKS, None, None, 1, False, False, 1)
    opening = [Ready(ModelCard(ATTACKS, "int8", "cpu", 8192, True), READY.spec, READY.memory)]
    async with open_chat(ScriptedEngine(opening=opening), past=OpenChat(chat, Tree(said))) as stage:
        await stage.ready()
        await shows(stage, "hostile title")
