"""Slash commands: offered while they are typed, in the palette, and what each of them does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from textual.events import Key
from textual.theme import Theme
from textual.widgets import HelpPanel

from localspec.config.tables import Config, PresetTable
from localspec.core.events import DrafterSums, Notice, Stats
from localspec.core.requests import Message, SamplingOptions
from localspec.history import recall
from localspec.models.catalog import Catalog, DraftEntry
from localspec.tui.chat.licence import OURS, licences
from localspec.tui.chat.report import answer_report
from localspec.tui.control.command_search import nearest
from localspec.tui.control.commands import COMMANDS, Command, UserNames, find
from localspec.tui.control.tuning import Tuning, begin
from localspec.tui.control.turns import WAITING
from localspec.tui.control.typed_commands import awaited, offers, parse
from localspec.tui.themes import ThemeChoice
from localspec.tui.transcript.markers import Note
from tests.models.test_catalog import fetched
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat, own_keys
from tests.support.scripted_engine import ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy


def command(name: str) -> Command:
    return Command(name, "", "", lambda *_: None)


@pytest.fixture
def picky(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command that needs one of three words, and what it was given."""
    given: list[str] = []
    pick = Command("pick", "pick one", "", lambda _, word: given.append(word), "a|b|bc", choices=("a", "b", "bc"))
    monkeypatch.setattr("localspec.tui.control.commands.COMMANDS", COMMANDS | {"pick": pick})
    monkeypatch.setattr("localspec.tui.keys.palette.COMMANDS", COMMANDS | {"pick": pick})
    return given


def popup(stage: Stage) -> list[str]:
    """The rows that are offered, the chosen one marked."""
    completion = stage.chat.prompt.completion
    return str(completion.render()).splitlines() if completion.display else []


def test_a_command_ends_at_the_first_blank_and_a_path_is_none():
    assert parse("/system\nBe brief.\nBe kind.") == ("system", "Be brief.\nBe kind.")
    assert parse("/NEW ") == ("new", "")
    assert parse("//new") is None
    assert parse("a /new") is None


def test_what_is_offered_begins_as_was_typed():
    assert [offer.text for offer in offers("/th")] == ["/theme "]
    assert [offer.text for offer in offers("/exi")] == ["/bye"]
    assert [offer.text for offer in offers("/theme dra", UserNames(themes=("dracula", "nord")))] == ["/theme dracula"]
    assert [offer.text for offer in offers("/export json")] == ["/export json", "/export jsonl"]
    assert [offer.usage for offer in offers("/model b", UserNames(models=("bb\x1b", "b")))] == ["b", "bb␛"]
    assert len(offers("/")) == len(COMMANDS)
    assert offers("//") == offers("/nope") == offers("/theme nope") == offers("a /") == offers("/\n") == ()
    assert awaited("/theme x") is find("theme")
    assert awaited("/new x") is None


async def test_what_an_argument_may_be_is_offered_where_it_is_known():
    named = (("exit2", DraftEntry("early-exit", exit_layer=2)),)
    config = Config(presets={"mine": PresetTable()})
    tuning = Tuning(config, Catalog.load(), entry=replace(Catalog.load().resolve("guide"), drafts=named))
    looks = ThemeChoice(themes=(Theme("nocturne", primary="red"),))
    async with open_chat(ScriptedEngine(HELLO), tuning=tuning, looks=looks) as stage:
        for typed, offered in [
            ("/copy ", {"code", "all"}),
            ("/export ", {"md", "json", "jsonl"}),
            ("/preset m", {"mine"}),
            ("/preset ", {*config.all_presets}),
            ("/model g", {"guide"}),
            ("/draft e", {"exit2", "early-exit"}),
            ("/draft ", {"exit2", "early-exit", "lookup", "auto", "off", *tuning.catalog.models}),
            ("/theme no", {"nocturne", "nord"}),
        ]:
            stage.chat.prompt.completion.follow(typed, typed)
            assert {offer.usage for offer in stage.chat.prompt.completion._offers} == offered, typed


async def test_models_of_the_hubs_cache_and_of_other_programs_are_offered_too(tmp_path: Path):
    """As the picker has them."""
    (fetched("Somebody/Far-7B") / "config.json").touch()
    (tmp_path / "llama_cache").mkdir()
    (tmp_path / "llama_cache" / "tiny-Q8_0.gguf").touch()
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.until(lambda: stage.chat.command_line.others == ("Somebody/Far-7B", "llama.cpp:tiny-Q8_0"))
        for typed, name in (("som", "Somebody/Far-7B"), ("lla", "llama.cpp:tiny-Q8_0")):
            for command in ("model", "draft"):
                stage.chat.prompt.completion.follow(text := f"/{command} {typed}", text)
                assert [offer.usage for offer in stage.chat.prompt.completion._offers] == [name]


def test_a_whole_name_comes_before_the_longer_ones(monkeypatch: pytest.MonkeyPatch):
    shadow = {"keyring": command("keyring")} | COMMANDS
    monkeypatch.setattr("localspec.tui.control.commands.COMMANDS", shadow)
    assert [offer.text for offer in offers("/key")] == ["/keyring", "/keys"]
    assert [offer.text for offer in offers("/keys")] == ["/keys"]
    monkeypatch.setattr("localspec.tui.control.commands.COMMANDS", shadow | {"key": command("key")})
    assert offers("/key")[0].text == "/key"


async def test_the_list_follows_what_is_typed_and_leaves_the_prompt_its_focus():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.pilot.press("slash")
        await stage.until(lambda: len(popup(stage)) == 8)
        assert stage.chat.focused is stage.chat.prompt
        await stage.pilot.press("s")
        await stage.sees("› /system [TEXT|none]", "  /stats", "all figures of the last answer")
        await stage.pilot.press("h")
        await stage.sees("› /show")
        await stage.pilot.press("backspace", "backspace", "backspace")
        await stage.until(lambda: not popup(stage))


async def test_up_and_down_choose_and_enter_runs_what_is_chosen():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.pilot.press("slash", "t", "down", "up", "up", "down")
        await stage.sees("› /tokens")
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.chat.transcript.view == "tokens")
        assert not stage.chat.prompt.text
        assert not stage.engine.requests


async def test_the_list_scrolls_to_what_is_chosen():
    async with open_chat(ScriptedEngine(HELLO), size=(60, 16)) as stage:
        await stage.ready()
        await stage.pilot.press("slash", "up")
        await stage.sees("› /bye")
        assert len(popup(stage)) == 8
        await stage.pilot.press("down")
        await stage.sees("› /new")


async def test_tab_completes_a_command_and_then_its_argument(picky: list[str]):
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.pilot.press("slash", "p", "i", "tab")
        assert stage.chat.prompt.text == "/pick "
        await stage.until(lambda: popup(stage) == [f"  {word:<2}  " for word in ("a", "b", "bc")])
        await stage.pilot.press("b", "down", "tab")
        assert stage.chat.prompt.text == "/pick bc"
        await stage.pilot.press("enter")
        await stage.until(lambda: picky == ["bc"])


async def test_enter_on_a_command_that_needs_an_argument_waits_for_it(picky: list[str]):
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.pilot.press("slash", "p", "i", "enter")
        assert stage.chat.prompt.text == "/pick "
        assert picky == []
        await stage.pilot.press("x", "enter")
        await stage.until(lambda: picky == ["x"])


@pytest.mark.slow
async def test_enter_on_spec_shows_what_it_may_be_and_changes_nothing():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.pilot.press("slash", *"spec", "enter")
        assert stage.chat.prompt.text == "/spec "
        await stage.until(lambda: [row.strip() for row in popup(stage)] == ["on", "auto", "off"])
        await stage.pilot.press("enter")
        await stage.sees("Write /spec on, auto or off.")
        assert not stage.engine.steered
        assert stage.chat.prompt.text == "/spec"
        await stage.pilot.press("ctrl+c")
        await stage.pilot.press("slash", *"spec", "enter", "down", "down", "enter")
        await stage.until(lambda: [one.mode for one in stage.engine.steered] == ["auto"])


async def test_enter_on_attach_waits_for_the_path(tmp_path: Path):
    (tmp_path / "notes.md").write_text("what they say")
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.pilot.press("slash", *"att", "enter")
        assert stage.chat.prompt.text == "/attach "
        await stage.sees("/attach PATH  attach a text file to your next message")
        assert not stage.chat.prompt.pills.attachments
        await stage.write(str(tmp_path / "notes.md"))
        await stage.pilot.press("enter")
        await stage.until(lambda: [file.text for file in stage.chat.prompt.pills.attachments] == ["what they say"])
        assert not stage.engine.requests


async def test_an_argument_that_may_be_anything_is_only_hinted_at():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.write("/system Be")
        await stage.sees("  /system [TEXT|none]  show or set the system prompt of this chat")
        await stage.pilot.press("up", "!")
        assert stage.chat.prompt.text == "!/system Be"


async def test_esc_closes_the_list_and_stops_nothing():
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine) as stage:
        await stage.begins("hi")
        await stage.pilot.press("slash", "t")
        await stage.until(lambda: popup(stage))
        await stage.pilot.press("escape")
        await stage.until(lambda: not popup(stage))
        assert stage.chat.state.phase == "generating"
        assert stage.chat.prompt.text == "/t"
        await stage.pilot.press("enter")
        await stage.sees("There is no command /t.", "/t")
        await stage.pilot.press("escape", "escape")
        await stage.sees("stopped")


WRONG = {
    "/nope": "There is no command",
    "/new 2": "/new takes no argument.",
    "/EXIT now": "/exit takes no argument",
    "/k 99": "Write /k auto, /k heuristic or /k N",
    "/spec perhaps": "Write /spec on, auto or off.",
    "/compare nobody": "'nobody' is not loaded. If it is a drafter: /draft nobody, then /compare.",
    "/compare early-exit:99": "Exit layer 99",
    "/set temperature x": "'temperature' needs a value. For example: /set temperature=0.7",
    "/set warmth=1": "There is no option 'warmth'.",
    "/set temperature=hot": "temperature is a number from 0 to 100, not 'hot'.",
    "/preset nobody": "There is no preset 'nobody'.",
    "/template nobody": "There is no template 'nobody'",
    "/theme draculla": "There is no theme draculla. Did you mean dracula?",
    "/tokens all": "Use /tokens, or /tokens rejected",
    "/copy nothing": "Use /copy, /copy code or /copy all.",
    "/export docx": "Try: /export md",
    "/export md /no/such/folder/chat.md": "There is no folder",
    "/attach /no/such/file": "There is no file /no/such/file.",
    "/model nobody": "There is no model 'nobody'. Use the built-in model",
    "/fit much": "Write /fit, or /fit TOKENS",
    "/draft nobody": "There is no model 'nobody'. Use /draft auto",
    "/fit 99999": "made for a context of 32 to 2,048 tokens",
}


async def test_a_command_that_cannot_be_obeyed_stays_in_the_prompt_to_be_mended():
    """With the sentence that says what is wrong, which was not there before. The chat is as it was."""
    tuning = begin(Config(), "guide", load={}, sampling=SamplingOptions())
    async with kept_chat(ScriptedEngine(HELLO), tuning=tuning, size=(100, 30)) as stage:
        await stage.ready()
        await stage.asks("hi", "Bye.", "idle")
        for typed, sentence in WRONG.items():
            stage.chat.prompt.clear()
            await stage.write(typed)
            stage.chat.prompt.completion.close()
            assert sentence not in stage.seen.replace(typed, ""), typed
            await stage.pilot.press("enter")
            await stage.sees(sentence)
            await stage.until(lambda typed=typed: stage.chat.prompt.text == typed)
            assert stage.chat.prompt.cursor_location == stage.chat.prompt.document.end
            assert len(stage.engine.requests) == len(stage.engines) == 1
            assert not stage.engine.steered
            assert len(stage.messages) == 2


async def test_what_was_wrong_is_mended_where_it_stands():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.send("/k 99")
        await stage.until(lambda: stage.chat.prompt.text == "/k 99")
        await stage.pilot.press("backspace", "enter")
        await stage.until(lambda: [one.k for one in stage.engine.steered] == [9])
        assert stage.chat.prompt.text == ""


async def test_a_key_has_nothing_to_give_back():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.write("a thought")
        await stage.pilot.press("f6")
        await stage.sees("There is no answered question to compare yet.")
        assert stage.chat.prompt.text == "a thought"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("/new", [("user", "second")]),
        ("/undo", [("user", "second")]),
        (
            "/system Be brief.",
            [("system", "Be brief."), ("user", "first"), ("assistant", "Hello there, world. Bye."), ("user", "second")],
        ),
    ],
)
async def test_a_command_typed_ahead_is_over_before_the_next_message(command: str, asked: list[tuple[str, str]]):
    """Keys that came while the screen was busy: it must not be the old chat that is asked, and then cut empty."""
    async with open_chat(ScriptedEngine(HELLO, HELLO)) as stage:
        await stage.ready()
        await stage.send("first")
        await stage.until(lambda: stage.chat.state.phase == "idle" and len(stage.messages) == 2)
        for letter in f"{command}\nsecond\n":
            stage.app.post_message(Key({"\n": "enter"}.get(letter, letter), "\r" if letter == "\n" else letter))
        await stage.until(lambda: len(stage.engine.requests) == 2)
        assert [(message.role, message.content) for message in stage.engine.requests[-1].messages] == asked


async def test_tokens_rejected_shows_what_was_rejected():
    """For terminals that do not send Shift+F3."""
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        await stage.send("/tokens rejected")
        await stage.until(lambda: stage.chat.transcript.view == "rejects")
        await stage.send("/tokens rejected")
        await stage.until(lambda: stage.chat.transcript.view == "tokens")
        await stage.send("/tokens")
        await stage.until(lambda: stage.chat.transcript.view == "markdown")
        await stage.send("/tokens pears")
        await stage.sees("Use /tokens, or /tokens rejected")
        assert stage.chat.transcript.view == "markdown"


async def test_a_word_that_is_no_command_brings_the_nearest_one_to_mind():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.send("/themes \x1b[2J")
        await stage.sees("There is no command /themes. Did you mean /theme?", "/themes ␛[2J")
        assert not stage.engine.requests
    assert nearest("zzz", ("theme",)) == ""


async def test_what_is_sent_ends_the_sentence_about_what_was_sent_before():
    """A refusal beside a command that did what it should would be taken for its own."""
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.asks("/k 99", "Write /k auto")
        await stage.pilot.press("backspace", "backspace", "3", "enter")
        await stage.until(lambda: stage.engine.steered)
        assert stage.chat.status.hint == "Speculation: on, 3 at a time"
        await stage.asks("/k heuristic", "Speculation: on, heuristic")


@pytest.mark.slow
async def test_why_a_message_stays_in_the_prompt_is_told_longer_than_until_the_first_word():
    engine = ScriptedEngine(HELLO, HELLO, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(2)
        await stage.send("one")
        await stage.until(lambda: stage.chat.state.phase == "reading")
        await stage.send("two")
        await stage.send("three")
        await stage.until(lambda: stage.chat.status.hint == WAITING)
        engine.permit(1)
        await stage.until(lambda: stage.chat.state.phase == "generating")
        assert stage.chat.status.hint == WAITING
        engine.permit()
        await stage.until(lambda: len(engine.requests) == 2 and stage.chat.state.phase == "idle")


@pytest.mark.slow
async def test_every_command_is_in_the_palette(picky: list[str]):
    async with open_chat(ScriptedEngine(HELLO), size=(80, 160)) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+p")
        await stage.sees("/pick a|b|bc", "Screenshot", *(command.usage for command in COMMANDS.values()))
        for textuals in ("Quit the application", "Change the current theme", "focused widget"):
            assert textuals not in stage.seen
        await stage.pilot.press(*"provenance")
        await stage.sees("/tokens", "show who wrote each token")
        await stage.pilot.press("down", "enter")
        await stage.until(lambda: stage.chat.transcript.view == "tokens")
        await stage.pilot.press("ctrl+p", *"pick")
        await stage.sees("/pick a|b|bc")
        await stage.pilot.press("down", "enter")
        await stage.until(lambda: stage.chat.prompt.text == "/pick ")
        assert picky == []
        assert stage.chat.focused is stage.chat.prompt


async def test_stats_are_those_of_the_last_answer():
    async with open_chat(ScriptedEngine(HELLO), size=(80, 40)) as stage:
        await stage.ready()
        await stage.send("/stats")
        await stage.sees("No answer has been measured yet.")
        await stage.send("hi")
        await stage.sees("Bye.", "idle")
        await stage.send("/stats")
        await stage.sees("first token 0.21 s", "6 in 3 rounds, 2.00 per round", "drafted", "3 accepted", "rejected")


async def test_stats_of_an_answer_stay_when_another_model_is_loaded_and_when_the_chat_is_opened_again():
    figures = "first token 0.21 s", "6 in 3 rounds, 2.00 per round"
    async with kept_chat(ScriptedEngine(HELLO), ScriptedEngine(), size=(80, 40)) as stage:
        await stage.asks("hi", "Bye.", "idle")
        await stage.chat.models.unload()
        stage.chat.engine.load()
        await stage.until(lambda: len(stage.engines) == 2)
        await stage.ready()
        await stage.asks("/stats", *figures)
    async with kept_chat(ScriptedEngine(), past=recall(), size=(80, 40)) as stage:
        await stage.ready()
        await stage.asks("/stats", *figures)


def test_what_plain_would_be_is_on_the_footing_of_the_speed():
    """The plain rounds' own, 120, is without what comes beside the rounds: it would not divide to the speed-up."""
    measured = Stats(predicted_n=6, predicted_ms=60.0, draft_n=3, baseline_tps=120.0, speedup=1.5)
    told = answer_report(measured)
    assert "speed       100.0 tok/s" in told
    assert "plain       about 66.7 tok/s, measured in rounds without a draft" in told
    assert "speed-up    ×1.50 in the rounds" in told
    assert "120.0" not in told


def test_the_report_has_what_each_kind_of_drafter_proposed():
    sums = {"lookup": DrafterSums(1200, 900, 100), "early-exit": DrafterSums(5, 0, 0)}
    told = answer_report(Stats(predicted_n=6, predicted_ms=60.0, draft_n=1205, by_drafter=sums)).splitlines()
    assert {"look-up     1,200: 900 accepted, 90 %", "early exit  5: 0 accepted"} <= {*told}


def test_the_report_says_what_its_bytes_are_of():
    """`doctor` reads 30.9 GB/s from memory, where 92.9 at best stood here without a word: of a model in a cache."""
    measured = Stats(predicted_n=6, predicted_ms=1.0, kv_bytes=1_000_000, peak_bytes=510_000_000, read_bytes=14_600_000)
    small = msgspec.structs.replace(measured, target_bytes=20_000_000, bandwidth_peak_gbs=92.9)
    large = msgspec.structs.replace(measured, target_bytes=900_000_000, bandwidth_peak_gbs=92.9)
    told = answer_report(small)
    assert "memory      21 MB for weights and caches, 510 MB for all of the program at most" in told
    assert "of 92.9 at best; so small a model may be read from a cache" in told
    assert "cache;" not in answer_report(large)
    assert answer_report(large).partition("of 92.9 at best")[2].startswith("\n")


async def test_what_has_just_been_told_is_not_told_again():
    """As the format of the weights, which every loading tells."""
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        for words in ("Weights are in int8.", "Weights are in int8.", "Speculation is off.", "Weights are in int8."):
            stage.chat.feedback.tell(Notice("info", "format", words, ""))
        await stage.until(lambda: len(stage.chat.query(Note)) >= 3)
        told = [note.text for note in stage.chat.query(Note)]
        assert told == ["Weights are in int8.", "Speculation is off.", "Weights are in int8."]


async def test_show_says_what_is_loaded():
    async with open_chat(ScriptedEngine(HELLO), size=(80, 40)) as stage:
        await stage.ready()
        await stage.send("/show")
        await stage.sees("layers      12", "format      int8 on cpu", "context     8,192 tokens", "guide-draft, auto")


async def test_unload_frees_the_engine_and_the_next_question_loads_another():
    async with open_chat(ScriptedEngine(HELLO), ScriptedEngine(HELLO)) as stage:
        await stage.send("one")
        await stage.sees("Bye.", "idle")
        await stage.send("/unload")
        await stage.sees("unloaded: the next question loads it again", "^R Reload")
        await stage.until(lambda: stage.engines[0].closed)
        await stage.send("/show")
        await stage.sees("Nothing is loaded.")
        await stage.send("two")
        await stage.until(lambda: len(stage.engines) == 2 and stage.engine.requests)
        assert stage.engine.requests[0].messages is not None
        assert [said.content for said in stage.engine.requests[0].messages] == [
            "one",
            "Hello there, world. Bye.",
            "two",
        ]
        await stage.sees("idle")


async def test_what_was_chosen_of_speculation_outlasts_an_unload():
    async with open_chat(ScriptedEngine(HELLO), ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.send("/spec off")
        await stage.until(lambda: stage.engines[0].steered)
        await stage.send("/unload")
        await stage.until(lambda: stage.engines[0].closed)
        await stage.send("one")
        await stage.until(lambda: len(stage.engines) == 2 and stage.engine.steered)
        assert stage.engine.steered == stage.engines[0].steered
        assert stage.chat.speculation.requested.mode == "off"


@pytest.mark.slow
async def test_unload_says_what_it_waits_for():
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine, tuning=own_keys({"stop": "f9"})) as stage:
        engine.permit(3)
        await stage.asks("hi", "Hello there")
        await stage.asks("/unload", "Stop the answer first: press F9.")
        engine.cancel = lambda: None  # type: ignore[method-assign]  # it takes a while
        await stage.pilot.press("f9", "ctrl+n")
        await stage.until(lambda: stage.chat.state.phase == "stopping" and stage.chat.state.answer is None)
        assert stage.chat.prompt.text == "/unload"
        await stage.pilot.press("enter")
        await stage.sees("Not now: stopping")
        assert not engine.closed


@pytest.mark.slow
async def test_unload_gives_back_the_question_that_waits_and_leaves_an_answer_alone():
    first = ScriptedEngine(paused=True)
    second = ScriptedEngine(HELLO, paused=True)
    async with open_chat(first, second) as stage:
        await stage.send("early")
        await stage.sees("You · queued")
        await stage.send("/unload")
        await stage.sees("unloaded")
        assert stage.chat.prompt.text == "early"
        second.permit(4)
        await stage.pilot.press("enter")
        await stage.sees("Hello there")
        await stage.send("/unload")
        await stage.sees("Stop the answer first: press Esc.")
        second.permit()
        await stage.sees("Bye.", "idle")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("command", ["/continue", "/retry", "/compare", "/spec on", "/bench"])
async def test_a_command_that_must_wait_stays_in_the_prompt(command: str):
    """While the model is loaded again; sent once more then, it runs."""
    cut = answer(step("Hello", " there", accepted=1), finish="length")
    first, second = ScriptedEngine(cut), ScriptedEngine(HELLO, HELLO, paused=True)
    async with open_chat(first, second) as stage:
        await stage.asks("hi", "cut at", "idle")
        first.die()
        await stage.until(lambda: stage.chat.state.phase == "gone")
        await stage.pilot.press("ctrl+r")
        await stage.until(lambda: stage.chat.state.phase == "loading")
        await stage.send(command)
        await stage.until(lambda: stage.chat.prompt.text == command)
        assert stage.chat.status.hint
        stage.chat.command_line.pick(find("retry"))  # from the menu: nothing was typed
        await stage.pilot.pause()
        assert stage.chat.prompt.text == command
        second.permit()
        await stage.ready()
        if command != "/bench":
            await stage.pilot.press("enter")
            await stage.until(lambda: (second.requests or second.steered) and not stage.chat.prompt.text)


async def test_a_system_prompt_is_for_this_chat_and_kept_with_it():
    engine = ScriptedEngine(HELLO, HELLO, HELLO)
    async with kept_chat(engine, system="Be kind.") as stage:
        await stage.send("/system")
        await stage.sees("System prompt: Be kind.")
        await stage.send("/system Be brief.")
        await stage.sees("System prompt: Be brief.")
        await stage.send("one")
        await stage.sees("Bye.", "idle")
        await stage.asks("/system none", "The system prompt is removed, from the next question on.")
        await stage.asks("/system none", "There is no system prompt. Set one: /system TEXT")
        await stage.send("two")
        await stage.until(lambda: len(engine.requests) == 2 and stage.chat.state.phase == "idle")
        await stage.send("/new")
        await stage.sees("Ask anything.")
        await stage.send("three")
        await stage.until(lambda: len(engine.requests) == 3 and stage.chat.state.phase == "idle")
    systems = [[m.content for m in request.messages or () if m.role == "system"] for request in engine.requests]
    assert systems == [["Be brief."], [], ["Be kind."]]
    assert recall(None).chat.system == "Be kind."


@pytest.mark.slow
async def test_a_chat_that_goes_on_has_the_system_prompt_it_was_given_last():
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.asks("one", "Bye.", "idle")
        await stage.asks("/system Be brief.", "System prompt: Be brief.")
    engine = ScriptedEngine(HELLO)
    async with kept_chat(engine, past=recall(None)) as stage:
        await stage.ready()
        await stage.send("two")
        await stage.until(lambda: engine.requests)
        assert (engine.requests[0].messages or ())[0] == Message("system", "Be brief.")


async def test_a_theme_by_its_name_and_the_nearest_one_to_a_wrong_name():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.send("/theme nord")
        await stage.sees("Theme nord, also at the next start")
        await stage.until(lambda: stage.app.theme == "nord")
        await stage.send("/theme nort")
        await stage.sees("There is no theme nort. Did you mean nord?")
        assert stage.app.theme == "nord"


async def test_the_list_of_keys_comes_and_goes():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.send("/keys")
        await stage.until(lambda: stage.chat.query(HelpPanel))
        await stage.send("/keys")
        await stage.until(lambda: not stage.chat.query(HelpPanel))


async def test_the_log_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("LOCALSPEC_STATE_DIR", str(tmp_path / "s"))
    async with open_chat(ScriptedEngine(HELLO), size=(200, 24)) as stage:
        await stage.ready()
        await stage.send("/log")
        await stage.sees(f"The engine's log: {tmp_path / 's' / 'log' / 'engine.log'}")
        monkeypatch.setenv("LOCALSPEC_STATE_DIR", "/dev/null/x")
        await stage.send("/log")
        await stage.sees("There is no log: its folder cannot be written.")


async def test_a_licence_is_said_as_far_as_it_is_known(tmp_path: Path):
    assert licences("guide") == OURS
    assert "its folder names no licence" in licences(str(tmp_path))
    (tmp_path / "README.md").write_text("---\ntags: [x]\nlicense: llama3.2\n---\nlicense: other\n")
    (tmp_path / "LICENSE.txt").write_text("terms")
    assert licences(str(tmp_path)).endswith(f"its card says llama3.2; see {tmp_path / 'LICENSE.txt'}.")
    assert "cannot be read" in licences(str(tmp_path / "gone"))
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.send("/license")
        await stage.sees("localspec and its built-in model guide are under Apache-2.0.")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", ["/new", "/clear"])
async def test_clear_begins_a_new_chat_and_keeps_the_old_one(command: str):
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.send("hi")
        await stage.sees("Bye.", "idle")
        await stage.send(command)
        await stage.until(lambda: not stage.messages)
        assert not stage.turns
        assert len(stage.engine.requests) == 1
    assert [said.content for said in recall().branch] == ["hi", "Hello there, world. Bye."]


async def test_chats_shows_the_chats_that_were_kept_and_goes_to_them():
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.send("a chat of mine")
        await stage.sees("Bye.", "idle")
        assert not stage.chat.sidebar.display
        await stage.send("/chats")
        await stage.sees("Today", "▸ a chat of mine")
        await stage.until(lambda: stage.chat.focused is stage.chat.sidebar.list)
        assert len(stage.engine.requests) == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", ["/bye", "/exit", "/quit"])
async def test_bye_leaves(command: str):
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        await stage.send(command)
        await stage.until(lambda: not stage.app.is_running)
    assert stage.app.return_code == 0
