"""A model that works is never let go for one that cannot: what is wrong is found before anything is unloaded, and when
loading fails all the same, the chat offers what works.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from localspec.config.tables import Config
from localspec.core.errors import IncompatiblePair
from localspec.core.events import Failure, Notice, SpecCard
from localspec.core.requests import ChangeDrafter, LoadRequest, SamplingOptions
from localspec.tui.chat import chosen_formats
from localspec.tui.control.tuning import Tuning, begin
from localspec.tui.screens.dialog import Dialog
from localspec.tui.screens.models import ModelsScreen
from localspec.tui.transcript.markers import Note
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat
from tests.support.models import save_snapshot
from tests.support.scripted_engine import READY, ScriptedEngine
from tests.support.tokenizers import CHATML, byte_level, gpt2_like, wordpiece_like

pytestmark = pytest.mark.heavy

GUIDE = "guide"
EXIT_3 = msgspec.structs.replace(READY, spec=SpecCard("early-exit", "layers 1–3", exit_layer=3))
PLAIN = msgspec.structs.replace(READY, spec=SpecCard("off", reason="it failed"))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.tui.screens.dialog.REST_SECONDS", 0)


def guide(**load: str) -> Tuning:
    return begin(Config(), GUIDE, load=load, sampling=SamplingOptions())


def tiny(folder: Path, **config: int) -> Path:
    marks = byte_level("<|im_start|>", "<|im_end|>")
    return save_snapshot(folder, marks, template=CHATML, eos="<|im_end|>", hidden_size=64, **config)


def notes(stage: Stage) -> list[str]:
    return [note.text for note in stage.chat.transcript.query(Note)]


async def test_what_cannot_work_is_one_sentence_and_the_model_stays_with_what_was_typed(tmp_path: Path):
    stranger = save_snapshot(tmp_path / "stranger", wordpiece_like())
    broken = tiny(tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"none of that")
    dumb = save_snapshot(tmp_path / "dumb", gpt2_like())
    (dumb / "tokenizer.json").unlink()
    refused = {
        f"/draft {stranger}": "'stranger' cannot draft for 'guide': tokenizers differ",
        "/draft early-exit:99": "Exit layer 99 is outside guide",
        f"/model {broken}": "broken",
        f"/model {dumb}": "Model 'dumb' has no tokenizer.json.",
        "/model guuide": "There is no model 'guuide'; did you mean 'guide'?",
        "/quant int3": "There is no weight format int3. Formats: auto, int8, int4",
    }
    async with open_chat(ScriptedEngine(HELLO), tuning=guide(), size=(120, 40)) as stage:
        await stage.ready()
        before = stage.chat.tuning.load
        for typed, sentence in refused.items():
            await stage.send(typed)
            await stage.sees(sentence)
            await stage.until(lambda typed=typed: stage.chat.prompt.text == typed)  # type: ignore[misc]
            stage.chat.prompt.clear()
        assert len(stage.engines) == 1
        assert not stage.engine.closed
        assert (stage.engine.drafters, stage.chat.tuning.load) == ([], before)
        assert str(stranger) not in "".join(notes(stage)), "models have names"
        for typed in ("/model GUIDE/", "/model guide"):
            await stage.send(typed)
            await stage.hints("This model is loaded already, with this draft.")
            assert (len(stage.engines), stage.engine.drafters) == (1, [])
        await stage.asks("hi", "Hello there", "Bye.")


async def test_a_format_is_listed_with_its_size_and_loaded_and_the_model_keeps_it():
    engines = [ScriptedEngine(), ScriptedEngine(changes=[[READY]]), ScriptedEngine()]
    async with open_chat(*engines, tuning=guide(), size=(120, 40)) as stage:
        await stage.ready()
        await stage.send("/quant")
        await stage.sees("guide at 2,048 tokens", "●  int8", "fits · loaded · auto", "   int4", "Load one: /quant int4")
        await stage.asks("/quant int4", "idle")
        await stage.until(lambda: len(stage.engines) == 2)
        assert stage.chat.tuning.load == LoadRequest.of(GUIDE, quant="int4")
        await stage.ready()
        await stage.until(lambda: chosen_formats.read() == {stage.chat.tuning.name: "int4"})

        await stage.send("/draft small")  # does not ask for another format
        await stage.until(lambda: engines[1].drafters == [ChangeDrafter("small")])
        await stage.ready()
        assert stage.chat.tuning.load == LoadRequest.of(GUIDE, quant="int4", draft="small")

        await stage.pilot.press("ctrl+o")
        await stage.until(lambda: isinstance(stage.app.screen, ModelsScreen) and stage.app.screen.disk.models)
        await stage.sees("f formats")
        await stage.pilot.press("f")
        await stage.sees("Load guide in which format?", "fp32", "in all")
        await stage.pilot.press("down", "down", "enter")
        await stage.until(lambda: len(stage.engines) == 3)
        chosen = stage.chat.tuning.load
        assert (chosen.weights.weight_format, chosen.draft) not in (("int4", "small"), ("auto", "small"))
        assert chosen.draft == "small"


@pytest.mark.slow
async def test_a_drafter_changes_in_the_middle_of_an_answer_without_another_engine():
    engine = ScriptedEngine(HELLO, HELLO, changes=[[EXIT_3], [PLAIN, FAILED], [READY]], paused=True)
    async with kept_chat(engine, tuning=guide()) as stage:
        engine.permit(1)
        await stage.ready()
        await stage.begins("hi")
        await stage.send("/draft early-exit:3")
        await stage.until(lambda: engine.drafters)
        await stage.sees("stopped", "changing the drafter")
        engine.permit(2)
        await stage.ready()
        await stage.sees("layers 1–3")
        assert engine.drafters == [ChangeDrafter("early-exit:3")]

        engine.permit()
        await stage.asks("and then?", "Bye.")
        await stage.ready()
        await stage.send("/draft early-exit:2")
        await stage.sees("The drafter could not be loaded", "^R Reload")
        assert (len(stage.engines), engine.closed, stage.chat.state.phase) == (1, False, "idle")


async def test_another_drafter_is_named_with_the_way_back():
    engine = ScriptedEngine(changes=[[EXIT_3], [PLAIN, FAILED]])
    async with open_chat(engine, tuning=guide(), size=(120, 40)) as stage:
        await stage.ready()
        await stage.send("/draft early-exit:3")
        named = "Drafting with layers 1–3 from now on. Was: guide-draft. Back: /draft auto"
        await stage.until(lambda: notes(stage) == [named])
        await stage.ready()
        await stage.send("/draft early-exit:2")
        await stage.sees("The drafter could not be loaded")
        assert notes(stage)[0] == named
        assert not any("from now on" in note for note in notes(stage)[1:]), "one that failed does not draft"


FAILED = Notice("warning", "drafter_failed", "The drafter could not be loaded (no memory).", "Reload to try again.")


async def test_a_start_that_fails_for_its_drafter_is_said_once_and_enter_loads_without(tmp_path: Path):
    stranger = save_snapshot(tmp_path / "stranger", wordpiece_like())
    differ = Failure(IncompatiblePair.code, "'stranger' cannot draft for 'guide'.", "", exit_code=6)
    engines = ScriptedEngine(opening=[differ]), ScriptedEngine(HELLO)
    async with open_chat(*engines, tuning=guide(draft=str(stranger))) as stage:
        await stage.sees("guide is not loaded", "Load guide without a draft model")
        assert "as it was" not in stage.seen, "nothing was loaded before"
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.engines) == 2)
        assert stage.chat.tuning.load.draft == "off"
        await stage.asks("hi", "Bye.", "idle")
        assert notes(stage) == ["✗ 'stranger' cannot draft for 'guide'."]


async def test_after_a_load_that_fails_late_the_model_before_comes_back_as_it_was(tmp_path: Path):
    other = tiny(tmp_path / "other")
    died = Failure("engine", "The self-check failed.", "", exit_code=1)
    engines = ScriptedEngine(HELLO), ScriptedEngine(opening=[died]), ScriptedEngine(HELLO)
    async with open_chat(*engines, tuning=guide(draft="small")) as stage:
        await stage.ready()
        before = stage.chat.tuning.load
        await stage.asks("hi", "Bye.")
        await stage.send(f"/model {other}")
        await stage.sees("other is not loaded", "Load guide again, as it was")
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.engines) == 3)
        await stage.ready()
        assert (stage.chat.tuning.load, stage.chat.tuning.name) == (before, GUIDE)
        assert stage.app.return_code is None


async def test_a_smaller_context_is_said_before_it_cuts(tmp_path: Path):
    """The chat has twelve tokens, and more answers."""
    short, shorter = tiny(tmp_path / "short"), tiny(tmp_path / "shorter", max_position_embeddings=33)
    engines = ScriptedEngine(HELLO), ScriptedEngine(), ScriptedEngine()
    async with open_chat(*engines, tuning=guide()) as stage:
        await stage.ready()
        await stage.asks("hi", "Bye.")
        await stage.ready()
        await stage.send(f"/model {short}")
        await stage.until(lambda: len(stage.engines) == 2)
        await stage.sees("short holds 512 tokens of a chat; before it was 8,192.")
        await stage.ready()

        stage.chat.conversation.branch[-1].made = msgspec.structs.replace(
            stage.chat.conversation.branch[-1].made, stats=msgspec.structs.replace(HELLO[-1].stats, context_used=400)
        )
        await stage.send(f"/model {shorter}")
        await stage.sees("This chat has 400 tokens, and shorter holds 33", "Load shorter")
        await stage.pilot.press("escape")
        await stage.until(lambda: not isinstance(stage.app.screen, Dialog))
        assert len(stage.engines) == 2, "the model that holds the chat stays"
        await stage.send(f"/model {shorter}")
        await stage.sees("Load shorter?")
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.engines) == 3)
