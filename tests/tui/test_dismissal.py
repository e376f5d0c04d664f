"""Keys that arrive together over a screen: what it has chosen first counts, and the chat below stays."""

from __future__ import annotations

import pytest
from textual import events

from localspec.tui.screens.chat import ChatScreen
from tests.support.chat_stage import HELLO, Stage, open_chat
from tests.support.scripted_engine import ScriptedEngine


async def at_once(stage: Stage, *keys: str) -> None:
    """As a terminal sends them in one piece: none waits until another is dealt with."""
    for key in keys:
        stage.app.post_message(events.Key(key, key if len(key) == 1 else None))
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))


@pytest.mark.parametrize(
    ("opens", "keys"),
    [
        *(((opens, ("enter", "enter"))) for opens in ("/theme", "/set", "/tree")),
        *(
            ((opens, ("escape",) * 3))
            for opens in ("/theme", "/set", "/tree", "ctrl+o", "ctrl+p", "/draft", "f1", "f6")
        ),
        ("ctrl+p", ("down", "enter", "enter")),
        ("f1", ("f1", "f1", "f1")),
    ],
)
async def test_keys_that_come_at_once_leave_the_chat_there(opens: str, keys: tuple[str, ...]):
    async with open_chat(ScriptedEngine(HELLO, HELLO, HELLO), size=(100, 30)) as stage:
        await stage.send("hi")
        await stage.ready()
        await (stage.send(opens) if opens.startswith("/") else stage.pilot.press(opens))
        await stage.until(lambda: not isinstance(stage.app.screen, ChatScreen))
        if opens == "ctrl+p":
            await stage.sees("/new")  # it has searched
        await at_once(stage, *keys)
        assert stage.app.is_running
        await stage.ready()


async def test_what_is_typed_at_once_over_the_drafters_goes_to_the_prompt():
    async with open_chat(ScriptedEngine(HELLO), size=(100, 30)) as stage:
        await stage.ready()
        await stage.send("/why")
        await stage.until(lambda: not isinstance(stage.app.screen, ChatScreen))
        await at_once(stage, *"为什么ab")
        await stage.until(lambda: stage.chat.prompt.text == "为什么ab")
