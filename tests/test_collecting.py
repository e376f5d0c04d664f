"""What a question lets go: all that was drawn of messages that are not there any more."""

from __future__ import annotations

from weakref import ref

from tests.chat_stage import HELLO, open_chat
from tests.scripted_engine import ScriptedEngine


async def test_nothing_is_kept_that_was_drawn_of_a_chat_that_was_left():
    """Textual would keep the lines of the last thousand widgets."""
    async with open_chat(ScriptedEngine(HELLO, HELLO)) as stage:
        await stage.asks("go", "Bye.", "idle")
        drawn = ref(stage.messages[0]._styles_cache)
        await stage.asks("/new", "Ask anything.")
        await stage.asks("again", "Bye.", "idle")
        await stage.until(lambda: drawn() is None)
