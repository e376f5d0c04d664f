"""What the engine says of how a model loads is said in the chat's words, once; what is not known stands in one line."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from localspec.core.events import Notice, SpecCard
from localspec.tui.chat.starters import OF_CHAT, OF_CODE, OF_GUIDE, OF_TEXT, starter
from localspec.tui.control.tuning import Tuning
from localspec.tui.transcript.markers import Note
from tests.support.chat_stage import HELLO, open_chat
from tests.support.scripted_engine import READY, ScriptedEngine

pytestmark = pytest.mark.heavy

STORED = "The weights are stored as 8-bit numbers (int8, 139 MB): smaller and faster."
FORMAT = Notice("info", "format", STORED, "Exact but slower: --quant fp32")
PLAIN = replace(READY, spec=SpecCard("off", reason="its state cannot be rolled back"))


async def test_how_a_model_loads_is_said_once_in_the_chats_words_and_what_drafts_in_one_line():
    """Three loads of the same model: one note, which names a command; of a drafter only the state line speaks."""
    engines = [ScriptedEngine(HELLO, opening=[FORMAT, PLAIN]) for _ in range(3)]
    async with open_chat(*engines, size=(120, 30)) as stage:
        await stage.sees(f"{STORED} Exact but slower: /quant fp32")
        await stage.sees("no draft model · F5: why?")
        for number in (1, 2):
            await stage.send("/unload")
            await stage.sees("unloaded")
            await stage.asks("hi", "Bye.", "idle")
            assert stage.engine is engines[number]
        notes = [note.text for note in stage.chat.query(Note)]
        assert len(notes) == 1
        assert stage.seen.count("no draft model") == 1
        assert "--" not in "".join(notes)


async def test_what_the_engine_says_of_an_answer_is_said_each_time():
    read = Notice("info", "read_as", "Read as: what is a drafter?")
    async with open_chat(ScriptedEngine([read, *HELLO], [read, *HELLO]), size=(80, 40)) as stage:
        await stage.ready()
        for _ in range(2):
            await stage.asks("waht", "Bye.", "idle")
        await stage.until(lambda: len([note for note in stage.chat.query(Note) if "Read as" in note.text]) == 2)


def test_a_first_message_suits_the_model():
    assert starter("guide") == OF_GUIDE
    assert starter("Qwen/Qwen2.5-Coder-7B-Instruct") == OF_CODE
    assert starter("/models/Llama-3.2-1B", chats=False) == OF_TEXT
    assert starter("/models/code/SmolLM2-135M-Instruct") == OF_CHAT


async def test_the_welcome_suggests_it_once_the_model_is_known_and_in_a_new_chat_too():
    base = replace(PLAIN, model=replace(READY.model, chat=False))
    tuning = Tuning(name="org/base")
    async with open_chat(ScriptedEngine(HELLO, opening=[base]), tuning=tuning, size=(100, 30)) as stage:
        await stage.sees(f"Try: {OF_TEXT}")
        await stage.pilot.press("ctrl+n")
        await stage.sees(f"Try: {OF_TEXT}")
        stage.chat.measuring.run_bench = ended  # type: ignore[method-assign]
        await stage.send("/bench")
        await stage.sees("only plain decoding is measured. F5 shows what could draft.")


async def ended() -> None:
    """A bench that measures nothing."""
