"""Settings in the chat: sampling and presets, themes, keys, and another model or drafter. No model, no clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from textual.theme import Theme
from textual.widgets import Input, Select

from localspec.config.reading import read
from localspec.config.tables import ChatTable, Config, PresetTable, UiTable
from localspec.core import paths
from localspec.core.errors import UsageError
from localspec.core.events import Failure, Notice, SpecCard
from localspec.core.requests import ChangeDrafter, LoadRequest, SamplingOptions
from localspec.history import History, NewChat
from localspec.models.catalog import Catalog
from localspec.runtime.local_models import on_disk
from localspec.tui.control.tuning import Tuning, begin
from localspec.tui.panels.disk_tab import OnDisk
from localspec.tui.screens.models import ModelsScreen
from localspec.tui.screens.sampling_form import SamplingForm
from localspec.tui.themes import ThemeChoice, look, user_themes
from localspec.tui.transcript.markers import Note
from tests.models.test_catalog import fetched
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat
from tests.support.models import save_snapshot
from tests.support.scripted_engine import READY, ScriptedEngine
from tests.support.tokenizers import CHATML, byte_level

pytestmark = pytest.mark.heavy

GUIDE = "guide"
MODELS_OWN = SamplingOptions(**READY.model.sampling)
SILENT = msgspec.structs.replace(
    READY, model=msgspec.structs.replace(READY.model, sampling={})
)  # a model that names no temperature
EXIT_3 = msgspec.structs.replace(READY, spec=SpecCard("early-exit", "layers 1–3", exit_layer=3))


def guide(config: Config | None = None) -> Tuning:
    return begin(config or Config(), GUIDE, load={}, sampling=SamplingOptions())


async def asked_with(stage: Stage) -> SamplingOptions:
    """What the next question is asked with."""
    count = len(stage.engine.requests)
    await stage.send("hi")
    await stage.until(lambda: len(stage.engine.requests) > count and stage.chat.state.phase == "idle")
    return stage.engine.requests[-1].sampling


# --- /set and /preset


async def test_what_is_set_holds_from_the_next_question_on():
    async with open_chat(ScriptedEngine(HELLO, HELLO, HELLO, HELLO)) as stage:
        await stage.ready()
        assert await asked_with(stage) == MODELS_OWN
        await stage.asks("/set temperature=0.7 top_k=5", "From the next question on: temperature 0.7 · top_k 5")
        assert await asked_with(stage) == SamplingOptions(temperature=0.7, top_k=5)
        await stage.asks("/set temperature= top_k=", "temperature 0 (the model's own)")
        await stage.send('/set max_tokens=500 stop="# #" stop=end')
        await stage.hints('max_tokens 500 · stop "# #" "end"')
        assert await asked_with(stage) == MODELS_OWN
        assert (stage.engine.requests[-1].max_tokens, stage.engine.requests[-1].stop) == (500, ("# #", "end"))
        await stage.send("/set max_tokens=none stop=none")
        assert await asked_with(stage) == MODELS_OWN
        assert (stage.engine.requests[-1].max_tokens, stage.engine.requests[-1].stop) == (None, ())


async def test_a_seed_of_minus_one_is_no_seed():
    async with open_chat(ScriptedEngine(HELLO), size=(100, 24)) as stage:
        await stage.ready()
        await stage.asks("/set seed=3", "seed 3 ")
        await stage.send("/set seed=-1")
        await stage.until(lambda: "seed 3" not in stage.seen and stage.chat.tuning.sampling.fixed_seed is None)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("/set temprature=1", "There is no option 'temprature'; did you mean 'temperature'?"),
        ("/set top_k=5 temperature=hot", "temperature is a number from 0 to 100, not 'hot'."),
        ("/set hot", "'hot' needs a value. For example: /set temperature=0.7 top_p=0.9"),
        ("/preset precice", "There is no preset 'precice'; did you mean 'precise'?"),
    ],
)
async def test_what_cannot_be_set_changes_nothing_and_returns_to_the_prompt(typed: str, sentence: str):
    async with open_chat(ScriptedEngine(HELLO), size=(100, 24)) as stage:
        await stage.ready()
        await stage.asks(typed, sentence)
        assert stage.chat.prompt.text == typed
        assert (stage.chat.tuning.chosen, stage.chat.tuning.preset) == (SamplingOptions(), None)


async def test_a_preset_takes_the_place_of_what_was_said_and_brings_its_system_prompt():
    tuning = guide(Config(presets={"[/nope]": PresetTable(top_p=0.5, system="Be odd.")}))
    async with open_chat(ScriptedEngine(HELLO, HELLO), tuning=tuning, size=(100, 24)) as stage:
        await stage.ready()
        await stage.send("/set temperature=0.9")
        await stage.asks("/preset", "Preset: none. Available: precise, balanced, creative, [/nope].")
        await stage.asks("/preset [/nope]", "preset [/nope] · temperature 0 (models.toml) · top_p 0.5")
        await stage.asks("/preset", "Preset: [/nope]. Available: precise,")
        assert await asked_with(stage) == SamplingOptions(temperature=0, top_p=0.5)  # models.toml: the guide is greedy
        assert [m.content for m in stage.engine.requests[-1].messages or ()] == ["Be odd.", "hi"]
        await stage.send("/preset balanced")
        assert await asked_with(stage) == SamplingOptions(temperature=0.7, top_p=0.95)


async def test_a_preset_is_taken_back():
    """ "/preset none" was refused, though "/preset" says none."""
    async with open_chat(ScriptedEngine(HELLO), size=(120, 24)) as stage:
        await stage.ready()
        before = stage.chat.tuning.sampling
        await stage.send("/preset creative")
        await stage.hints("preset creative")
        await stage.send("/preset")
        await stage.hints("/preset none leaves it.")
        await stage.send("/preset none")
        await stage.until(lambda: stage.chat.tuning.preset is None)
        assert await asked_with(stage) == before


async def test_a_preset_says_that_it_brings_a_system_prompt_and_that_it_takes_it_away():
    presets = {"odd": PresetTable(system="Be odd.\x1b[2J"), "long": PresetTable(system="word " * 100)}
    tuning = guide(Config(presets=presets))
    async with open_chat(ScriptedEngine(HELLO), tuning=tuning, size=(100, 24)) as stage:
        await stage.ready()
        await stage.send("/preset odd")
        await stage.hints("the preset's system prompt: “Be odd.␛[2J”")
        await stage.send("/preset long")
        await stage.hints(f"the preset's system prompt: “{'word ' * 12}…”")
        await stage.send("/preset precise")
        await stage.hints("preset precise · temperature 0 · no system prompt")
        await stage.send("/set seed=3")
        await stage.hints("seed 3")
        assert "systemprompt" not in stage.hint, "it did not change"
        await stage.send("/system Be brief.")
        await stage.send("/preset odd")
        await stage.hints("preset odd")
        assert "systemprompt" not in stage.hint, "the chat's own stays"


async def test_the_form_says_it_too_and_what_was_the_system_prompt_before_is_again():
    tuning = guide(Config(presets={"odd": PresetTable(system="Be odd.")}))
    assert tuning.entry is not None
    tuning.entry = replace(tuning.entry, system="Be good.")
    async with open_chat(ScriptedEngine(HELLO), tuning=tuning, size=(100, 24)) as stage:
        await stage.ready()
        for words in ("the preset's system prompt: “Be odd.”", "the former system prompt: “Be good.”"):
            opened = await form(stage)
            opened.preset.value = Select.NULL if tuning.preset else "odd"
            await stage.pilot.press("enter")
            await stage.until(lambda: stage.app.screen is stage.chat)
            await stage.hints(words)


async def test_the_history_keeps_what_was_used_and_the_preset_comes_back():
    async with kept_chat(ScriptedEngine(HELLO, HELLO)) as stage:
        await stage.ready()
        await stage.send("/preset precise")
        await stage.send("/set seed=3")
        await asked_with(stage)
        await stage.send("/preset balanced")
        await asked_with(stage)
    with History() as history:
        opened = history.open(history.chats()[0].id)
    assert opened.chat.preset == "balanced"  # as it is now
    params = [message.generation.params for message in opened.branch if message.generation]
    assert params == [
        {"preset": "precise", "temperature": 0.0, "seed": 3, "set": "seed=3"},
        {"preset": "balanced", "temperature": 0.7, "top_p": 0.95},
    ]
    tuning = guide()
    assert tuning.begin_preset(None, opened.chat.preset) == ()
    assert tuning.sampling.temperature == 0.7
    (notice,) = guide().begin_preset(None, "gone")
    assert notice.message == "The preset of this chat, 'gone', no longer exists."
    with pytest.raises(UsageError, match="no preset 'gone'"):
        guide().begin_preset("gone", "balanced")


async def test_a_chat_is_opened_with_its_own_preset_and_options_and_keeps_them():
    """What was chosen in another chat neither holds in this one nor is written over what it had."""
    async with kept_chat(ScriptedEngine(*[HELLO] * 6)) as stage:
        await stage.ready()
        await stage.send("/preset precise")
        await stage.send("/set seed=3 max_tokens=20")
        await asked_with(stage)
        await stage.pilot.press("ctrl+n")
        await stage.send("/preset creative")
        await stage.send('/set temperature=0.2 stop="###"')
        await asked_with(stage)
        with History() as history:
            second, first = (found.id for found in history.chats())
        await stage.chat.chats.choose(first, None, "")
        await stage.sees("preset precise")
        assert await asked_with(stage) == SamplingOptions(temperature=0, seed=3)
        assert (stage.engine.requests[-1].max_tokens, stage.engine.requests[-1].stop) == (20, ())
        await stage.chat.chats.choose(second, None, "")
        await stage.sees("preset creative")
        assert (await asked_with(stage)).temperature == 0.2
        assert (stage.engine.requests[-1].max_tokens, stage.engine.requests[-1].stop) == (20, ("###",)), (
            "a new chat begins as it was before"
        )
    with History() as history:
        assert [found.preset for found in history.chats()] == ["creative", "precise"]


# --- the form


async def form(stage: Stage) -> SamplingForm:
    await stage.send("/set")
    await stage.until(lambda: isinstance(stage.app.screen, SamplingForm))
    assert isinstance(stage.app.screen, SamplingForm)
    return stage.app.screen


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [(60, 16), (120, 40)])
async def test_the_form_shows_what_is_said_and_beneath_it_what_applies(size: tuple[int, int]):
    tuning = guide(Config(presets={"[/nope]": PresetTable(top_p=0.5)}))
    tuning.set("top_k=5")
    async with open_chat(ScriptedEngine(HELLO), tuning=tuning, size=size) as stage:
        await stage.ready()
        opened = await form(stage)
        assert [field.value for field in opened.query(Input)] == ["", "5", "", "", "", "", "", ""]
        assert opened.query_one("#temperature", Input).placeholder == "0 · greedy · models.toml"
        assert opened.query_one("#min_p", Input).placeholder == "off"
        assert opened.query_one("#seed", Input).placeholder == "another each time"  # no model has one
        await stage.sees(
            "Sampling", "repetition penalty", "seed", "max tokens", "stop", "Apply", "Cancel", "Esc closes"
        )
        await stage.pilot.press("0", ".", "4", "enter")
        await stage.until(lambda: stage.app.screen is stage.chat)
        assert await asked_with(stage) == SamplingOptions(temperature=0.4, top_k=5)


@pytest.mark.parametrize("size", [(60, 16), (80, 24)])
async def test_the_form_says_that_blanks_part_stop_texts(size: tuple[int, int]):
    async with open_chat(ScriptedEngine(HELLO), size=size) as stage:
        await stage.ready()
        stop = (await form(stage)).query_one("#stop", Input)
        stop.focus()
        await stage.pilot.press(*"The End")
        await stage.sees('Ends at "The" or "End".', "in quotes", "Apply")
        stop.value = '"The End"'
        await stage.until(lambda: "Ends at" not in stage.seen)
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.app.screen is stage.chat)
        assert stage.chat.tuning.stop == ("The End",)


async def test_the_form_shows_where_the_focus_is_and_says_what_enter_does_there():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        opened = await form(stage)
        await stage.sees("Enter applies")
        label = opened.preset.query_one("#label")
        assert not label.visual_style.reverse
        await stage.pilot.press("shift+tab")
        await stage.sees("Enter opens the list")
        await stage.until(lambda: label.visual_style.reverse)
        await stage.pilot.press("enter")
        await stage.sees("Enter chooses")
        await stage.pilot.press("escape")
        await stage.sees("Enter opens the list")
        await stage.pilot.press("shift+tab")
        await stage.sees("Enter cancels")
        await stage.pilot.press("shift+tab")
        await stage.sees("Enter applies")


@pytest.mark.slow
async def test_the_form_does_not_apply_what_is_out_of_range_and_esc_changes_nothing():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        opened = await form(stage)
        await stage.pilot.press("9", "9", "9")
        await stage.sees("temperature is a number from 0 to 100, not '999'.")
        assert opened.query_one("#temperature", Input).has_class("-invalid")
        await stage.pilot.press("tab", "enter")
        assert stage.app.screen is opened
        await stage.until(lambda: opened.focused is opened.query_one("#temperature"))
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.screen is stage.chat)
        assert await asked_with(stage) == MODELS_OWN
        assert stage.chat.prompt.has_focus


@pytest.mark.slow
async def test_a_preset_chosen_in_the_form_empties_the_fields():
    tuning = guide()
    tuning.set("temperature=0.9")
    async with open_chat(ScriptedEngine(HELLO), tuning=tuning) as stage:
        await stage.ready()
        opened = await form(stage)
        await stage.pilot.press("shift+tab", "enter", "escape")
        assert stage.app.screen is opened, "Esc closes the list of presets first"
        await stage.pilot.press("enter", "down", "down", "enter")
        await stage.until(lambda: opened.chosen == "balanced")
        temperature = opened.query_one("#temperature", Input)
        await stage.until(lambda: (temperature.value, temperature.placeholder) == ("", "0.7 · preset"))
        opened.query_one("#apply").focus()
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.app.screen is stage.chat)
        assert (tuning.preset, tuning.chosen) == ("balanced", SamplingOptions())


# --- themes


def theme_file(name: str, text: str) -> Path:
    paths.themes_dir().mkdir(parents=True, exist_ok=True)
    file = paths.themes_dir() / name
    file.write_text(text)
    return file


async def test_the_theme_that_was_chosen_is_there_at_the_next_start():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        assert stage.app.theme == "tokyo-night"
        assert not paths.config_file().exists()
        stage.app.theme = "nord"
        await stage.until(lambda: read().ui.theme == "nord")
    assert look(read(), None, paths.themes_dir()).theme == "nord"
    assert look(read(), "dracula", paths.themes_dir()).theme == "dracula"


async def test_a_theme_that_cannot_be_remembered_is_told_and_holds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", "/dev/null/x")
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        stage.app.theme = "nord"
        await stage.until(lambda: stage.chat.query(Note))
        await stage.sees("cannot be written")
        assert stage.app.theme == "nord"


async def test_a_theme_of_the_users_own_can_be_chosen_and_a_bad_one_is_a_note():
    theme_file("mine.toml", "name = 'mine'\nprimary = '#ff8800'\n[variables]\nblock-cursor-text-style = 'bold'")
    theme_file("odd.toml", "name = 'odd'\nprimary = 'no colour'")
    looks = look(Config(), "mine", paths.themes_dir())
    async with open_chat(ScriptedEngine(HELLO), looks=looks, size=(100, 24)) as stage:
        await stage.sees("The theme odd.toml is left out: primary 'no colour' is not a colour.")
        assert (stage.app.theme, stage.app.current_theme.primary) == ("mine", "#ff8800")
        assert "odd" not in stage.app.available_themes


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name = 'x'", "missing required field `primary`"),
        ("name = 'x'\nprimary = 'red'\nsecundary = 'red'", "unknown field `secundary`"),
        ("name = 'x'\nprimary = 'red'\naccent = 'rot'", "accent 'rot' is not a colour"),
        ("name = 'a,b'\nprimary = 'red'", "its name is empty or has a comma or a control character"),
        ("name = \"\\u001b[2J\"\nprimary = 'red'", "its name is empty or has a comma or a control character"),
        ("name = 'x'\nprimary = 'red'\n[variables]\nblock-cursor-background = '}'", "'}' is not a colour"),
        ("name = 'x'\nprimary = 'red'\n[variables]\nbutton-focus-text-style = 'odd'", "is not a text style"),
        ("[[[", "left out: "),
    ],
)
def test_a_theme_file_that_is_wrong_is_left_out_with_one_sentence(text: str, sentence: str):
    theme_file("x.toml", text)
    themes, (notice,) = user_themes(paths.themes_dir())
    assert (themes, notice.level) == ([], "warning")
    assert sentence in notice.message
    assert notice.message.startswith("The theme x.toml is left out: ")


def test_a_theme_that_is_not_there_ends_the_start_if_asked_for_and_else_is_a_note():
    with pytest.raises(UsageError, match="no theme 'nrod'; did you mean 'nord'"):
        look(Config(), "nrod", paths.themes_dir())
    found = look(Config(ui=UiTable(theme="gone")), None, paths.themes_dir())
    assert (found.theme, found.notices[0].message) == ("tokyo-night", "Theme 'gone' no longer exists.")


async def test_a_theme_named_like_markup_does_no_harm():
    looks = ThemeChoice(themes=(Theme("[/nope]", "red"),), notices=(Notice("warning", "x", "[/nope]"),))
    async with open_chat(ScriptedEngine(HELLO), looks=looks) as stage:
        await stage.sees("[/nope]")
        stage.app.theme = "[/nope]"
        await stage.until(lambda: read().ui.theme == "[/nope]")


@pytest.mark.slow
async def test_themes_named_like_markup_are_listed_tried_and_chosen():
    """Each is shown as one moves to it; Esc is as it was, and only what is chosen is there at the next start."""
    for number, name in enumerate(["[/nope]", "[red]night"]):
        theme_file(f"{number}.toml", f"name = '{name}'\nprimary = 'red'")
    looks = look(Config(), None, paths.themes_dir())
    async with open_chat(ScriptedEngine(HELLO), looks=looks, size=(80, 40)) as stage:
        await stage.ready()
        await stage.send("/theme")
        await stage.sees("[/nope]", "[red]night", "nord")
        await stage.pilot.press("home")
        await stage.until(lambda: stage.app.theme == "[/nope]")
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.theme == "tokyo-night")
        assert stage.chat is stage.app.screen
        stage.app.action_change_theme()
        await stage.sees("[/nope]")
        await stage.pilot.press("home", "down")
        await stage.until(lambda: stage.app.theme == "[red]night")
        assert not paths.config_file().exists()
        await stage.pilot.press("enter")
        await stage.sees("Theme [red]night, also at the next start: it is ui.theme in config.toml.")
        await stage.until(lambda: read().ui.theme == "[red]night")


# --- keys and looks


async def test_the_other_send_key_sends_and_enter_breaks_the_line():
    tuning = guide(Config(chat=ChatTable(send_key="ctrl+j")))
    async with open_chat(ScriptedEngine(HELLO), tuning=tuning) as stage:
        await stage.sees("Enter", "new line; Ctrl+J sends")
        await stage.ready()
        await stage.pilot.press("a", "enter", "b", "alt+enter", "c")
        assert stage.chat.prompt.text == "a\nb\nc"
        await stage.pilot.press("ctrl+j")
        await stage.until(lambda: stage.engine.requests)
        assert (stage.engine.requests[0].messages or ())[0].content == "a\nb\nc"


async def test_a_key_of_the_users_own_does_what_another_did():
    tuning = guide(Config(keymap={"tokens": "f9, ctrl+y", "speed": "f3"}))
    async with open_chat(ScriptedEngine(HELLO), tuning=tuning, size=(150, 30)) as stage:
        await stage.ready()
        await stage.pilot.press("f9")
        await stage.until(lambda: stage.chat.transcript.view == "tokens")
        shown = stage.chat.speed.fold
        await stage.pilot.press("f3")
        await stage.until(lambda: stage.chat.speed.fold != shown)
        assert stage.chat.transcript.view == "tokens"


async def test_keys_that_are_named_are_the_users():
    tuning = guide(Config(keymap={"stop": "f7", "rejects": "f8", "newline": "f9", "page.up": "f10"}))
    async with open_chat(ScriptedEngine(HELLO), tuning=tuning, size=(150, 30)) as stage:
        await stage.sees("F7        stop", "F9        new line (or \\ Enter)", "F10 PgDn  scroll")
        await stage.pilot.press("f3")
        await stage.sees("‹rejected› F8")


async def test_the_header_names_the_template_that_was_chosen():
    async with open_chat(ScriptedEngine(HELLO), size=(150, 30)) as stage:
        await stage.ready()
        await stage.asks("/template chatml", "int8 · template chatml ⇐")
        await stage.asks("/template none", "int8 · completion mode ⇐")
        await stage.asks("/template auto", "int8 ⇐")


async def test_the_chat_looks_as_the_settings_say():
    tuning = guide(Config(ui=UiTable(token_view="tokens", speed_panel="on")))
    async with open_chat(ScriptedEngine(HELLO), tuning=tuning, size=(90, 24)) as stage:
        await stage.sees("Speed", "draft ", "bonus")
    tuning = guide(Config(ui=UiTable(speed_panel="off")))
    async with open_chat(ScriptedEngine(HELLO), tuning=tuning, size=(150, 24)) as stage:
        await stage.sees("Ask anything.")
        assert "Speed" not in stage.seen.replace("F2 Speed", "")


# --- another model, another drafter


def model(folder: Path) -> Path:
    save_snapshot(folder, byte_level("<|im_start|>", "<|im_end|>"), template=CHATML, eos="<|im_end|>", hidden_size=64)
    return folder


def used(folder: Path) -> None:
    """A chat was held with it."""
    with History() as history:
        history.begin(NewChat(str(folder)), "hi")


def test_on_the_shelf_are_the_catalogues_models_and_folders_of_chats_that_are_still_there(tmp_path: Path):
    assert not paths.history_file().exists()
    assert [found.name for found in on_disk(Catalog.load(), GUIDE)] == [GUIDE]
    assert not paths.history_file().exists(), "looking must not begin a history"
    used(model(tmp_path / "tiny"))
    used(tmp_path / "gone")
    (tmp_path / "broken").mkdir()
    used(tmp_path / "broken")
    found = {each.name: each for each in on_disk(Catalog.load(), GUIDE)}
    assert set(found) == {GUIDE, str(tmp_path / "tiny"), str(tmp_path / "broken")}
    assert (found[GUIDE].fit, found[str(tmp_path / "tiny")].fit) == ("fits", "fits")
    assert found[GUIDE].num_bytes > 1 << 20
    assert found[str(tmp_path / "tiny")].quant == "fp32"
    assert [name for name, _ in found[GUIDE].drafts] == ["auto", "small", "off"]
    assert found[GUIDE].drafts[0][1] == "layers 1–2"
    assert [name for name, _ in found[str(tmp_path / "tiny")].drafts] == ["auto", "off"]
    assert found[str(tmp_path / "broken")].fit == "cannot be loaded"
    (loaded, *_) = on_disk(Catalog.load(), GUIDE, loaded="int8")
    assert loaded.quant == f"int8, stored {found[GUIDE].quant}"
    (loaded, *_) = on_disk(Catalog.load(), GUIDE, loaded=found[GUIDE].quant)
    assert loaded.quant == found[GUIDE].quant


def test_on_the_shelf_are_models_that_were_fetched_and_can_be_loaded():
    model(fetched("maker/tiny"))
    fetched("maker/writes-no-text")
    with History() as history:
        history.begin(NewChat("maker/tiny"), "hi")
    shelf = list(on_disk(Catalog.load(), GUIDE))
    assert [(found.name, found.quant, found.fit) for found in shelf][1:] == [("maker/tiny", "fp32", "fits")]
    assert [found.name for found in on_disk(Catalog.load(), "maker/tiny")] == [GUIDE, "maker/tiny"]


async def test_what_was_fetched_is_picked_by_its_name():
    model(fetched("maker/tiny"))
    async with open_chat(ScriptedEngine(), ScriptedEngine(), tuning=guide(), size=(100, 30)) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+o")
        await picker(stage)
        await stage.sees("maker/tiny")
        await stage.pilot.press("down", "enter")
        await stage.until(lambda: len(stage.engines) == 2)
        assert stage.chat.tuning.load == LoadRequest("maker/tiny")
        assert stage.chat.tuning.name == "maker/tiny"
        await stage.ready()


def test_listing_models_leaves_a_damaged_history_where_it_is():
    path = paths.history_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no database " * 99)
    assert [found.name for found in on_disk(Catalog.load(), GUIDE)] == [GUIDE]
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == {path.name: b"no database " * 99}


def test_a_history_out_of_reach_has_no_chats(monkeypatch: pytest.MonkeyPatch):
    """Nobody may look into its folder: for root, who runs tests too, a name as long as none may be."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", "/" + "x" * 5000)
    assert [found.name for found in on_disk(Catalog.load(), GUIDE)] == [GUIDE]


async def test_models_that_cannot_be_listed_are_a_sentence(monkeypatch: pytest.MonkeyPatch):
    def breaks(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission\x1b[2J denied")

    monkeypatch.setattr("localspec.runtime.local_models.on_disk", breaks)
    async with open_chat(ScriptedEngine(), tuning=guide(), size=(100, 30)) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+o")
        await stage.sees("The models on this machine cannot be listed:", "Permission␛[2J denied")
        assert "Looking for models" not in stage.seen


def test_a_model_without_room_says_so(monkeypatch: pytest.MonkeyPatch):
    def available(free: int) -> str:
        monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": free}))
        return next(on_disk(Catalog.load(), GUIDE)).fit

    words = {available(megabytes << 20) for megabytes in range(40, 80)}
    assert words == {"fits", "fits in int4", "from disk", "too large"}


async def picker(stage: Stage) -> OnDisk:
    await stage.until(lambda: isinstance(stage.app.screen, ModelsScreen) and stage.app.screen.disk.models)
    assert isinstance(stage.app.screen, ModelsScreen)
    return stage.app.screen.disk


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("size", "keys", "draft"), [((60, 16), ("enter",), "auto"), ((120, 40), ("tab", "down", "enter"), "off")]
)
async def test_another_model_is_picked_and_the_conversation_goes_on(
    size: tuple[int, int], keys: tuple[str, ...], draft: str, tmp_path: Path
):
    """The first Enter loads it, with its usual drafter; one of its drafters is chosen behind Tab."""
    folder = model(tmp_path / "[/nope]")
    used(folder)
    first, second = ScriptedEngine(HELLO), ScriptedEngine(HELLO, opening=[SILENT])
    async with open_chat(first, second, tuning=guide(), size=size) as stage:
        await stage.ready()
        await asked_with(stage)
        await stage.pilot.press("ctrl+o")
        opened = await picker(stage)
        await stage.sees(
            "● ",
            "guide",
            "fits",
            "fp32",
            "[/nope]" if size[0] > 60 else " nope]",
            "auto: layers 1–2",
            "off: decode plain",
            "Esc",
        )
        await stage.pilot.press("down")
        await stage.until(lambda: opened.drafts == ["auto", "off"])
        await stage.pilot.press(*keys)
        await stage.until(lambda: len(stage.engines) == 2)
        assert stage.chat.tuning.load == LoadRequest(str(folder), draft=draft)
        assert first.closed
        await stage.ready()
        await asked_with(stage)
        assert [m.content for m in second.requests[0].messages or ()] == ["hi", "Hello there, world. Bye.", "hi"]
        balanced = SamplingOptions(temperature=0.7, top_p=0.95)
        assert second.requests[0].sampling == balanced, "not the guide's: this one names no temperature"


async def test_a_folder_that_is_loaded_is_among_them_before_any_chat_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = model(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    tuning = begin(Config(), "./tiny", load={}, sampling=SamplingOptions())
    async with open_chat(ScriptedEngine(), tuning=tuning, size=(100, 24)) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+o")
        opened = await picker(stage)
        assert [each.name for each in opened.models] == [GUIDE, str(folder)]
        await stage.until(lambda: opened.model_list.highlighted == 1)


OWN = f"""
schema_version = 1
[models.own]
path = "{paths.packaged("assets/guide/target")}"
quant = "fp32"
ctx = 512
system = "Be brief."
preset = "precise"
template = "words"
"""


@pytest.mark.slow
async def test_a_model_brings_what_models_toml_says_of_it():
    paths.models_file().parent.mkdir(parents=True)
    paths.models_file().write_text(OWN)
    async with open_chat(*(ScriptedEngine(HELLO, HELLO) for _ in range(3)), tuning=guide(), size=(100, 24)) as stage:
        await stage.ready()
        await stage.send("/model own")
        await stage.until(lambda: len(stage.engines) == 2)
        await stage.ready()
        tuning = stage.chat.tuning
        assert (tuning.load.weights.weight_format, tuning.load.weights.ctx) == ("fp32", 512)
        await stage.sees("template words", "preset precise")
        assert await asked_with(stage) == SamplingOptions(temperature=0)
        request = stage.engine.requests[-1]
        assert [m.content for m in request.messages or ()] == ["Be brief.", "hi"]
        assert request.template is not None
        assert request.template.name == "words"
        await stage.send("/model guide")
        await stage.until(lambda: len(stage.engines) == 3)
        await stage.ready()
        assert (tuning.load.weights.weight_format, tuning.load.weights.ctx, tuning.template) == ("auto", None, None)
        await asked_with(stage)
        turns = [m.content for m in stage.engine.requests[-1].messages or ()]
        assert turns == ["hi", "Hello there, world. Bye.", "hi"]


def test_a_chat_begins_with_what_models_toml_says_of_its_model():
    paths.models_file().parent.mkdir(parents=True)
    paths.models_file().write_text(OWN)
    tuning = begin(Config(), "own", load={"ctx": 64}, sampling=SamplingOptions())
    assert (tuning.load.weights.weight_format, tuning.load.weights.ctx) == ("fp32", 64)
    assert tuning.template is not None
    assert (tuning.template.name, tuning.begin_preset(None, None), tuning.preset) == ("words", (), "precise")
    assert (tuning.begin_preset(None, "creative"), tuning.preset) == ((), "creative"), "the chat's own comes first"
    (gone,) = tuning.begin_preset(None, "nobody's")
    assert (gone.code, tuning.preset) == ("preset", "precise")


@pytest.mark.slow
async def test_another_drafter_is_picked_for_the_same_model_which_stays_loaded():
    engine = ScriptedEngine(changes=[[READY], [EXIT_3]])
    async with open_chat(engine, tuning=guide()) as stage:
        await stage.ready()
        await stage.send("/draft")
        await stage.sees("Drafters for guide", "at most 1/4 of the size")
        await stage.pilot.press("end", "enter")
        opened = await picker(stage)
        await stage.sees("●  guide  int8, stored bf16")
        await stage.until(lambda: opened.draft_list.has_focus)
        await stage.pilot.press("down", "enter")
        await stage.until(lambda: engine.drafters == [ChangeDrafter("small")])
        assert stage.chat.tuning.load == LoadRequest(GUIDE, draft="small")
        await stage.ready()
        await stage.send("/draft early-exit:3")
        await stage.until(lambda: engine.drafters[1:] == [ChangeDrafter("early-exit:3")])
        assert stage.chat.tuning.load.draft == "early-exit:3"
        await stage.ready()
        await stage.sees("layers 1–3")
        await stage.pilot.press("ctrl+o")
        opened = await picker(stage)
        await stage.until(lambda: opened.drafts == ["early-exit:3", "auto", "small", "off"])
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.screen is stage.chat)
        assert len(stage.engines) == 1


async def test_what_is_loaded_is_not_loaded_again_when_it_is_picked():
    async with open_chat(ScriptedEngine(), tuning=guide()) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+o")
        opened = await picker(stage)
        await stage.until(lambda: opened.drafts)
        await stage.pilot.press("enter")
        await stage.sees("This model is loaded already, with this draft.")
        assert stage.chat.state.phase == "idle"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("/model giude", "There is no model 'giude'; did you mean 'guide'?"),
        ("/draft early-exit:x", "'x' is not an exit layer."),
        ("/draft early-exit:99", "Exit layer 99 is outside"),
        ("/model /etc", "this is not the folder of a model"),
        ("/model org/nobody", "'org/nobody' is not on this machine. Ctrl+O, Hub, finds and downloads it."),
        ("/draft nobody", "There is no model 'nobody'"),
        ("/draft lookup:3", "This drafter takes no argument: ':3'."),
    ],
)
async def test_a_model_that_is_not_there_leaves_the_one_there_is(typed: str, sentence: str):
    async with open_chat(ScriptedEngine(HELLO), tuning=guide(), size=(120, 24)) as stage:
        await stage.ready()
        await stage.asks(typed, sentence, "idle")
        assert stage.chat.prompt.text == typed
        await stage.pilot.press("ctrl+c")
        assert await asked_with(stage) == SamplingOptions(temperature=0)
        assert len(stage.engines) == 1


async def test_a_model_that_does_not_load_says_why_and_another_can_be_picked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("localspec.tui.screens.dialog.REST_SECONDS", 0)
    folder = model(tmp_path / "big")
    refused = Failure("does_not_fit", "Not enough memory for big.", "Try a smaller one.", exit_code=5)
    async with open_chat(
        ScriptedEngine(), ScriptedEngine(opening=[refused]), ScriptedEngine(HELLO), tuning=guide()
    ) as stage:
        await stage.ready()
        await stage.asks(f"/model {folder}", "big is not loaded", "Load guide again, as it was")
        assert "without a draft model" not in stage.seen, "none was to draft"
        await stage.pilot.press("down", "enter")  # another
        await picker(stage)
        notes = [note.text for note in stage.chat.transcript.query(Note)]
        assert notes.count("✗ Not enough memory for big. Try a smaller one.") == 1
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.engines) == 3)
        await stage.ready()
        await stage.asks("hi", "Bye.", "idle")


@pytest.mark.slow
async def test_another_model_ends_the_answer_that_is_being_written_and_keeps_it(tmp_path: Path):
    folder = model(tmp_path / "other")
    writing, after = ScriptedEngine(HELLO, paused=True), ScriptedEngine(HELLO)
    async with kept_chat(writing, after) as stage:
        stage.chat.tuning = stage.chat.conversation.tuning = guide()
        await stage.begins("hi")
        await stage.send(f"/model {folder}")
        await stage.until(lambda: len(stage.engines) == 2)
        await stage.ready()
        await stage.sees("Hello there", "stopped")
        await asked_with(stage)
        assert [m.content for m in after.requests[0].messages or ()] == ["hi", "Hello there", "hi"]
    with History() as history:
        (kept,) = history.chats()
        assert kept.model_key == str(folder)
        assert [message.status for message in history.open(kept.id).branch] == ["done", "stopped", "done", "done"]


def test_flags_hold_for_every_model_and_a_draft_for_the_one_it_was_named_with():
    tuning = replace(guide(), load_flags={"quant": "int4", "draft": "off"})
    assert tuning.choice(GUIDE).load == LoadRequest.of(GUIDE, quant="int4")
