"""A chat belongs to its model: opening it under another says so on the spot, and offers both."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from localspec.config.tables import Config
from localspec.core.events import Failure
from localspec.core.requests import SamplingOptions
from localspec.history import History, NewChat, StoredMessage, recall
from localspec.history.records import Generation, SavedAnswer
from localspec.tui.control.tuning import Tuning, begin
from localspec.tui.panels.sidebar import Sidebar
from localspec.tui.screens.dialog import Dialog
from localspec.tui.screens.overflow import Overflow
from localspec.tui.transcript.markers import Note
from tests.support.chat_stage import HELLO, Stage, kept_chat
from tests.support.chats import stats
from tests.support.models import save_snapshot
from tests.support.scripted_engine import READY, ScriptedEngine, step
from tests.support.tokenizers import CHATML, byte_level

pytestmark = pytest.mark.heavy

SMALL = msgspec.structs.replace(READY, model=msgspec.structs.replace(READY.model, context_max=64))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.tui.screens.dialog.REST_SECONDS", 0)


def guide() -> Tuning:
    return begin(Config(), "guide", load={}, sampling=SamplingOptions())


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another model, which holds 512 tokens."""
    marks = byte_level("<|im_start|>", "<|im_end|>")
    return save_snapshot(tmp_path / "other", marks, template=CHATML, eos="<|im_end|>", hidden_size=64)


def held(model_key: str, title: str, used: int = 200) -> str:
    """The id of a chat with this model; its answer used so many tokens of the context."""
    with History() as history:
        asked = history.begin(NewChat(model_key, title), title)
        answered = history.append(StoredMessage.unsaved(asked.chat_id, "assistant", "", asked.id, status="partial"))
        figures = msgspec.structs.replace(stats(step("Yes."), finish="stop"), context_used=used, context_max=512)
        history.save(answered.id, SavedAnswer("Yes.", Generation(Path(model_key).name, stats=figures)))
        return asked.chat_id


async def opens(stage: Stage, chat_id: str) -> None:
    stage.chat.post_message(Sidebar.Chosen(chat_id))
    await stage.until(lambda: stage.chat.conversation.branch)


def models() -> dict[str, str]:
    """Each chat's model, as the history has it."""
    with History(reading=True) as history:
        return {chat.title: chat.model_key for chat in history.chats()}


async def test_a_chat_of_another_model_offers_both_and_the_history_has_the_right_one(other: Path):
    first, second = held(str(other), "of another"), held(str(other), "goes on")
    engines = ScriptedEngine(HELLO, opening=[SMALL]), ScriptedEngine(HELLO)
    async with kept_chat(*engines, tuning=guide()) as stage:
        await stage.ready()
        await opens(stage, second)
        await stage.sees("A chat with other", "This chat was with other; guide is loaded.")
        await stage.sees(
            "other holds 512 tokens of a chat, guide 64; this one has 200.", "the oldest turns will have to"
        )
        await stage.sees("Load other", "Go on with guide")
        await stage.pilot.press("down", "enter")
        await stage.hints("This chat was with other; it goes on with guide.")
        await stage.asks("and?", "Bye.")
        await stage.ready()
        assert len(stage.engines) == 1

        await opens(stage, first)
        await stage.sees("A chat with other")
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.engines) == 2)
        await stage.ready()
        assert stage.chat.tuning.name == str(other)
        await stage.asks("and?", "Bye.")
        await opens(stage, first)  # whose model is loaded now
        assert not isinstance(stage.app.screen, Dialog)
    assert models() == {"of another": str(other), "goes on": "guide"}


async def test_a_model_that_is_gone_is_a_sentence_and_so_is_one_that_the_user_named(other: Path, tmp_path: Path):
    gone, named = held(str(tmp_path / "gone"), "gone"), held(str(other), "named")
    async with kept_chat(ScriptedEngine(opening=[SMALL]), past=recall(named), tuning=guide()) as stage:
        await stage.ready()
        await stage.sees("This chat was with other; it goes on with guide. With guide the oldest turns")
        assert not isinstance(stage.app.screen, Dialog), "the model was named"
        await opens(stage, gone)
        await stage.sees("This chat was with gone, which cannot be loaded now:")
        assert not isinstance(stage.app.screen, Dialog)
        assert sum("goes on with" in note.text for note in stage.chat.transcript.query(Note)) == 0, "another chat's"


async def asks_what_is_too_long(stage: Stage, chat: str) -> None:
    """In another model's chat, which goes on with the present one."""
    await stage.ready()
    await opens(stage, chat)
    await stage.sees("A chat with other")
    await stage.pilot.press("escape")
    await stage.until(lambda: stage.app.screen is stage.chat)
    await stage.send("what about it?")
    await stage.until(lambda: isinstance(stage.app.screen, Overflow))


@pytest.mark.slow
async def test_a_question_that_is_too_long_may_be_asked_of_the_chats_own_model(other: Path):
    chat = held(str(other), "long")
    too_long = Failure("context_overflow", "The prompt is 300 tokens and the context holds 64.", "", 5, 1, 300)
    engines = ScriptedEngine([too_long], opening=[SMALL]), ScriptedEngine(HELLO)
    async with kept_chat(*engines, tuning=guide()) as stage:
        await asks_what_is_too_long(stage, chat)
        await stage.sees("m  Load other, this chat's own model")
        await stage.pilot.press("m")
        await stage.until(lambda: len(stage.engines) == 2)
        await stage.ready()
        assert stage.chat.prompt.text == "what about it?"
        await stage.pilot.press("enter")
        await stage.sees("Bye.")
        assert [message.content for message in stage.turns[:3]] == ["long", "Yes.", "what about it?"]
    assert models() == {"long": str(other)}


async def test_a_question_that_is_too_long_leaves_the_chat_for_a_new_one_and_the_chat_stays_its_models(other: Path):
    chat = held(str(other), "long")
    too_long = Failure("context_overflow", "The prompt is 500 tokens and the context holds 64.", "", 5, 1, 500)
    async with kept_chat(ScriptedEngine([too_long], HELLO, opening=[SMALL]), tuning=guide()) as stage:
        await asks_what_is_too_long(stage, chat)
        await stage.pilot.press("n")
        await stage.sees("Bye.", "what about it?", "idle")
    assert models() == {"long": str(other), "what about it?": "guide"}
    with History(reading=True) as history:
        assert [message.content for message in history.open(chat).tree.nodes.values()] == ["long", "Yes."]


@pytest.mark.slow
async def test_where_the_own_model_does_not_hold_it_either_it_is_not_offered(other: Path):
    chat = held(str(other), "longer")
    too_long = Failure("context_overflow", "The prompt is 500 tokens and the context holds 64.", "", 5, 1, 500)
    async with kept_chat(ScriptedEngine([too_long], opening=[SMALL]), tuning=guide()) as stage:
        await asks_what_is_too_long(stage, chat)
        assert "own model" not in stage.seen
        await stage.pilot.press("m")
        assert isinstance(stage.app.screen, Overflow)
        await stage.pilot.press("escape")
        await stage.ready()
