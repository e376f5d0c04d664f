"""Keys, pastes, sizes: what a user does to the chat besides asking."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual._compositor import LayoutUpdate
from textual.command import CommandPalette
from textual.driver import Driver
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import HelpPanel, Input

from localspec.core.events import Done, Notice
from localspec.core.requests import GenerateRequest, Message
from localspec.tui.app import ChatApp
from localspec.tui.chat.recorder import Noticed
from localspec.tui.control import interrupts
from localspec.tui.control.commands import COMMANDS
from localspec.tui.control.tuning import Tuning
from localspec.tui.markdown.paragraph import Paragraph
from localspec.tui.panels.disk_tab import ModelPick
from localspec.tui.panels.prompt import Prompt
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.compare import CompareScreen
from localspec.tui.screens.compare_methods import CompareMethod
from localspec.tui.screens.drafters import DraftersScreen
from localspec.tui.screens.help import HelpScreen
from localspec.tui.screens.models import ModelLists, ModelsScreen
from localspec.tui.screens.overflow import Overflow
from localspec.tui.screens.sampling_form import SamplingForm
from localspec.tui.screens.theme_picker import ThemePicker
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.markers import Note
from localspec.tui.transcript.question import Question
from localspec.tui.transcript.transcript import Transcript
from tests.support.chat_stage import HELLO, Stage, open_chat, scrolled_up
from tests.support.scripted_engine import ScriptedEngine, totals

pytestmark = pytest.mark.heavy

SHELF = ModelLists(list, lambda _: [], str, list, ModelPick("guide", "auto"))
OVER: dict[str, Callable[[Stage], Screen[Any]]] = {
    "help": lambda _: HelpScreen([("F1", "Help")]),
    "compare": lambda _: CompareScreen(
        GenerateRequest(), (CompareMethod("plain", False), CompareMethod("drafted", True)), lambda _: None
    ),
    "drafters": lambda _: DraftersScreen("Drafters for guide", "Nothing.", str),
    "themes": lambda _: ThemePicker(("nord", "tokyo-night"), "tokyo-night"),
    "overflow": lambda _: Overflow("The chat is full.", 2),
    "models": lambda stage: ModelsScreen(
        ModelLists(list, lambda _: [], str, list, ModelPick("guide", "auto")), stage.chat.library
    ),
    "sampling": lambda _: SamplingForm(Tuning()),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("keys", [["ctrl+j"], ["alt+enter"], ["shift+enter"], ["backslash", "enter"]])
async def test_keys_that_break_the_line(keys: list[str]):
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.pilot.press("a", *keys, "b")
        assert stage.chat.prompt.text == "a\nb"
        assert not stage.chat.query(Question)


async def test_a_burst_of_typing_is_taken_in_the_order_it_was_typed():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        for key, character in [*((c, c) for c in "first"), ("enter", "\r"), *((c, c) for c in "next")]:
            stage.app.post_message(events.Key(key, character))
        await stage.sees("Bye.", "idle")
        assert stage.chat.conversation.branch[0].text == "first"
        assert stage.chat.prompt.text == "next"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (["a", "b", "c", "backspace", "backspace", "x"], "ax"),
        (["a", "b", "left", "x", "home", "y"], "yaxb"),
        (["a", "b", "ctrl+u", "x"], "x"),
        (["a", "b", "ctrl+a", "x", "delete", "delete", "y"], "xy"),
        (["slash", "p", "r", "e", "tab", "x"], "/preset x"),
    ],
)
async def test_keys_that_edit_are_obeyed_before_what_is_typed_after_them(keys: list[str], text: str):
    """In a burst, as a busy computer makes one of quick typing."""
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        for key in keys:
            stage.app.post_message(events.Key(key, "/" if key == "slash" else key if len(key) == 1 else None))
        await stage.until(lambda: stage.chat.prompt.text == text)


FIELDS: dict[str, Callable[[ChatScreen], Input]] = {
    "find": lambda chat: chat.find.words,
    "search": lambda chat: chat.sidebar.search,
    "rename": lambda chat: chat.sidebar.name_field,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*FIELDS, "sampling"])
async def test_so_are_they_in_every_other_field(name: str):
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        if name == "sampling":
            form = SamplingForm(Tuning())
            await stage.app.push_screen(form)
            field: Input = form.inputs["temperature"]
        else:
            field = FIELDS[name](stage.chat)
            for shown in (stage.chat.find, stage.chat.sidebar, field):
                shown.display = True
            field.focus()
        await stage.until(lambda: field.has_focus)
        for key in ("1", "2", "3", "backspace", "backspace", "4", "home", "5"):
            stage.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await stage.until(lambda: field.value == "514")


async def test_a_key_that_comes_when_the_focus_has_left_does_nothing():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.write("typed")
        await stage.pilot.press("ctrl+f")
        await stage.until(lambda: stage.chat.find.words.has_focus)
        stage.chat.prompt.post_message(events.Key("backspace", None))
        await stage.pilot.pause()
        assert stage.chat.prompt.text == "typed"


async def test_a_paste_never_sends_and_brings_no_control_bytes():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.write("a\r\nb\rc\n\x1b]52;c;aGk=\x07\u202e")
        assert stage.chat.prompt.text == "a\nb\nc\n␛]52;c;aGk="
        assert not stage.chat.query(Question)


async def test_a_paste_into_the_palette_is_as_clean():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+p")
        await stage.until(lambda: stage.app.screen is not stage.chat)
        await stage.write("\x1b[2J\x9b2J\ttwo\rlines")
        await stage.until(lambda: stage.app.screen.query_one(Input).value == "␛[2J2J\ttwo")
        await stage.pilot.press("escape")  # Textual's palette fails if the app ends while it looks for commands
        await stage.until(lambda: stage.app.screen is stage.chat)


async def test_the_panel_of_keys_goes_with_esc():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        stage.app.action_show_help_panel()
        await stage.until(lambda: stage.chat.query(HelpPanel))
        await stage.pilot.press("escape")
        await stage.until(lambda: not stage.chat.query(HelpPanel))


async def test_the_welcome_fits_the_smallest_terminal():
    async with open_chat(ScriptedEngine(HELLO), size=(60, 16)) as stage:
        await stage.sees("Ask anything.", "scroll", "idle")


async def test_the_prompt_grows_to_ten_lines_and_up_edits_the_last_message():
    async with open_chat(ScriptedEngine(HELLO), size=(80, 30)) as stage:
        prompt = stage.chat.prompt
        await stage.until(lambda: prompt.content_size.height == 1)
        await stage.write("\n".join(map(str, range(30))))
        await stage.until(lambda: prompt.content_size.height == 10)
        await stage.pilot.press("enter")
        await stage.until(lambda: prompt.content_size.height == 1)
        await stage.sees("Bye.", "idle")
        await stage.pilot.press("up")
        await stage.until(lambda: prompt.text == "\n".join(map(str, range(30))))


async def test_what_ctrl_c_cleared_comes_back_as_in_a_shell():
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        await stage.write("a draft")
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: not stage.chat.prompt.text)
        await stage.pilot.press("ctrl+underscore")
        await stage.until(lambda: stage.chat.prompt.text == "a draft")


async def test_ctrl_z_suspends_the_chat_whatever_is_typed(monkeypatch: pytest.MonkeyPatch):
    """Where that cannot be, it says so, and takes nothing back that was typed."""
    sent: list[int] = []
    monkeypatch.setattr("os.kill", lambda _, number: sent.append(number))
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        await stage.write("a draft")
        await stage.pilot.press("ctrl+z")
        await stage.sees("The chat cannot be suspended here.", "a draft")
        assert not sent
        monkeypatch.setattr(type(stage.app._driver), "can_suspend", True)
        await stage.pilot.press("ctrl+z")
        await stage.until(lambda: sent == [signal.SIGTSTP])
        assert stage.chat.prompt.text == "a draft"
        drawn: list[object] = []
        display = stage.app._display
        monkeypatch.setattr(stage.app, "_display", lambda *shown: (drawn.extend(shown[1:]), display(*shown)))
        stage.app.post_message(Driver.SignalResume())
        await stage.until(lambda: any(isinstance(one, LayoutUpdate) for one in drawn))


async def test_ctrl_c_stops_then_clears_then_quits_at_the_second_time(monkeypatch: pytest.MonkeyPatch):
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine) as stage:
        await stage.begins("hi")
        await stage.write("draft")
        await stage.pilot.press("ctrl+c")
        await stage.sees("stopped", "draft")
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: not stage.chat.prompt.text)
        monkeypatch.setattr(interrupts, "QUIT_SECONDS", 0.01)
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: not stage.chat.status.hint)  # too late for a second one
        monkeypatch.setattr(interrupts, "QUIT_SECONDS", 60)
        await stage.pilot.press("ctrl+c")
        await stage.sees("Press Ctrl+C again to quit.")
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: not stage.app.is_running)
    assert stage.app.return_code == 0


async def test_ctrl_c_first_copies_what_is_selected_in_the_prompt():
    """Though an answer is being written, which it stops only when nothing is selected any more."""
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine) as stage:
        await stage.begins("hi")
        await stage.write("two words")
        await stage.pilot.press(*["shift+left"] * 5, "ctrl+c")
        await stage.sees("Copied.")
        assert stage.app.clipboard == "words"
        assert stage.chat.state.phase == "generating"
        assert stage.chat.prompt.text == "two words"
        await stage.pilot.press("ctrl+c")
        await stage.sees("stopped", "two words")


async def test_ctrl_c_first_copies_what_is_selected_in_the_transcript():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.asks("hi", "Bye.", "idle")
        await stage.write("a draft")
        words = stage.chat.query_one(Paragraph)
        await stage.pilot.mouse_down(words, offset=(6, 0))
        await stage.pilot.hover(words, offset=(10, 0))
        await stage.pilot.mouse_up(words, offset=(10, 0))
        await stage.pilot.press("ctrl+c")
        await stage.sees("Copied.")
        assert stage.app.clipboard == "there"
        assert stage.chat.prompt.text == "a draft"
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: not stage.chat.prompt.text)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("key", ["ctrl+q", "ctrl+d"])
async def test_keys_that_quit(key: str):
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        await stage.write("ab")
        await stage.pilot.press("home", "ctrl+d")
        assert stage.chat.prompt.text == "b"
        await stage.pilot.press("delete", key)
        await stage.until(lambda: not stage.app.is_running)


async def test_the_transcript_follows_until_the_user_scrolls_up():
    async with scrolled_up() as stage:
        stage.engine.permit()
        await stage.sees("idle")
        assert "line 39" not in stage.seen
        await stage.pilot.press(*["pagedown"] * 5)
        await stage.sees("line 39", "tok/s")


async def test_what_a_command_says_comes_into_sight_for_who_has_scrolled_up_and_no_other_news_moves_the_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    async with scrolled_up() as stage:
        stage.engine.permit()
        await stage.sees("idle")
        for command, said in (("/log", "The engine"), ("/export md", "This chat is now in")):
            await stage.send(command)
            await stage.sees(said)
            await stage.pilot.press("pageup", "pageup")
            await stage.until(lambda said=said: said not in stage.seen)
        news = Notice("info", "news", "There are news.")
        top = stage.chat.transcript.scroll_y
        for _ in range(2):
            stage.chat.post_message(Noticed(news))
            await stage.until(lambda: str(stage.chat.query(Note).last().content) == news.message)
            assert stage.chat.transcript.scroll_y == top
            assert news.message not in stage.seen
        stage.chat.post_message(Noticed(news, answers=True))
        await stage.sees(news.message)


@pytest.mark.parametrize("keys", [["ctrl+c", "ctrl+c"], ["ctrl+d"], ["ctrl+q"]])
async def test_who_leaves_while_the_model_loads_leaves_without_an_error(keys: list[str]):
    async with open_chat(ScriptedEngine(paused=True)) as stage:
        await stage.sees("loading")
        await stage.pilot.press(*keys)
        await stage.until(lambda: not stage.app.is_running)
    assert stage.app.return_code == 0


async def test_a_terminal_too_small_says_so_and_growing_again_loses_nothing():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.send("hi")
        await stage.sees("Bye.", "idle")
        await stage.write("typed")
        await stage.pilot.resize_terminal(50, 10)
        await stage.sees("Enlarge the terminal to 60×16: it is 50×10.")
        assert "Bye." not in stage.seen
        await stage.pilot.press("!")
        await stage.pilot.resize_terminal(60, 16)
        await stage.sees("Bye.", "typed!", "idle")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("over", OVER.values(), ids=OVER)
async def test_whatever_lies_over_the_chat_says_that_the_terminal_is_too_small(over: Callable[[Stage], Screen[Any]]):
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        stage.app.push_screen(over(stage))
        await stage.until(lambda: stage.app.screen is not stage.chat)
        for width, height in [(40, 10), (0, 0), (60, 15), (59, 16)]:
            await stage.pilot.resize_terminal(width, height)
            await stage.until(lambda size=(width, height): stage.app.size == size)
            if width:
                await stage.sees("Enlarge the terminal to 60×16", f"{width}×{height}.")
        await stage.pilot.resize_terminal(80, 24)
        await stage.until(lambda: "Enlarge the terminal" not in stage.seen)
        await stage.pilot.resize_terminal(40, 10)
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.screen is stage.chat)
        await stage.sees("Enlarge the terminal to 60×16", "40×10.")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("over", [*OVER.values(), lambda _: CommandPalette()], ids=[*OVER, "palette"])
async def test_ctrl_c_closes_whatever_lies_over_the_chat(over: Callable[[Stage], Screen[Any]]):
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.write("a draft")
        stage.app.push_screen(over(stage))
        await stage.until(lambda: stage.app.screen is not stage.chat)
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: stage.app.screen is stage.chat)
        assert stage.chat.prompt.text == "a draft"


async def test_ctrl_c_copies_what_is_selected_over_the_chat_and_then_closes():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.pilot.press("f1")
        await stage.sees("Esc closes this page")
        stage.app.screen.query_one(".quiet").text_select_all()
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: stage.app.clipboard.startswith("Esc closes this page"))
        assert stage.app.screen is not stage.chat
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: stage.app.screen is stage.chat)


async def test_it_runs_without_colour(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.send("hi")
        await stage.sees("You", "guide", "Bye.", "idle")


def test_every_key_has_a_name_of_its_own():
    names = [b.id for b in (*ChatScreen.BINDINGS, *ChatApp.BINDINGS, *Prompt.BINDINGS[-5:])]
    assert all(names)
    assert len(set(names)) == len(names)


async def test_a_slash_begins_a_command_and_two_begin_a_message():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.send("/nope 1")
        await stage.sees("There is no command /nope.", "/nope 1")
        assert not stage.engine.requests
        await stage.pilot.press("ctrl+c")
        await stage.send("/tokens")
        await stage.until(lambda: stage.chat.transcript.view == "tokens")
        await stage.send("//nope")
        await stage.until(lambda: stage.engine.requests)
        assert stage.engine.requests[0].messages == (Message("user", "/nope"),)


async def test_every_command_is_one_of_the_screen():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        assert [
            c.name for c in COMMANDS.values() if not callable(reduce(getattr, c.run.__code__.co_names, stage.chat))
        ] == []
    names = [name for c in COMMANDS.values() for name in (c.name, *c.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("typed", ["hi", "/continue"])
async def test_a_stop_while_an_answer_is_being_prepared_stops_it(typed: str, monkeypatch: pytest.MonkeyPatch):
    """Between the question and the engine's being asked there are awaits, in which keys are heard."""
    cut = [*HELLO[:2], Done("length", totals(HELLO[:2], "length"))]
    engine = ScriptedEngine(*([cut] if typed == "/continue" else []), HELLO, HELLO, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(1)
        await stage.ready()
        if typed == "/continue":
            engine.permit(len(cut))
            await stage.send("hi")
            await stage.sees("idle", "cut at")
        before = len(engine.requests)
        with monkeypatch.context() as held:
            stop_while(held, *((Answer, "resume") if typed == "/continue" else (Transcript, "show")))
            await stage.send(typed)
            await stage.sees("stopped")
        assert len(engine.requests) == before + 1
        engine.permit()
        await stage.send("next")
        await stage.sees("Hello there, world. Bye.", "idle")


def stop_while(monkeypatch: pytest.MonkeyPatch, owner: type[Widget], name: str) -> None:
    """Esc is pressed, and heard, in the method's last moment, when it prepares an answer."""
    method = getattr(owner, name)

    async def stopped(self: Widget, *arguments: object, **named: object) -> None:
        await method(self, *arguments, **named)
        chat = self.screen
        if isinstance(chat, ChatScreen) and chat.state.phase == "reading":
            self.app.post_message(events.Key("escape", None))
            async with asyncio.timeout(30):
                while chat.state.phase == "reading":
                    await asyncio.sleep(0)

    monkeypatch.setattr(owner, name, stopped)
