"""Every key of the chat does its work while the prompt has the focus, and every key with a name can be another."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
from textual.binding import Binding
from textual.dom import DOMNode
from textual.widgets._footer import FooterKey

from localspec.tui.app import ChatApp
from localspec.tui.control.letters import LETTERS
from localspec.tui.keys.keymap import NO_KEY, Bound, default_keys, remap, spelled
from localspec.tui.panels.chat_list import ChatList
from localspec.tui.panels.find import FindBar, Words
from localspec.tui.panels.keys_line import PASSING, Key, KeysLine, by_column, footer_key, in_columns, show_anew
from localspec.tui.panels.prompt import Prompt
from localspec.tui.panels.sidebar import Sidebar
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.help import HelpScreen, active_keys
from localspec.tui.transcript.question import Question
from tests.support.chat_stage import HELLO, Stage, open_chat, own_keys, scrolled_up
from tests.support.help_pages import ROOT
from tests.support.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.heavy

OWNERS = (ChatApp, ChatScreen, Prompt)
README = (ROOT / "README.md").read_text(encoding="utf-8")
KNOWN = default_keys(binding for owner in OWNERS for binding in owner.BINDINGS)
FREE = "f24"


def owner_of(stage: Stage, kind: type[DOMNode]) -> DOMNode:
    return {ChatApp: stage.app, ChatScreen: stage.chat, Prompt: stage.chat.prompt}[kind]


async def runs(stage: Stage, key: str, binding: Binding, owner: DOMNode) -> bool:
    """Whether the key, pressed while the prompt has some text, calls the action of the binding. To reload, which has
    its key from another, there must be something to."""
    node, name, arguments = stage.app._parse_action(binding.action, owner)
    called: list[tuple[object, ...]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node, f"action_{name}", lambda *given: called.append(given))
        patch.setattr(stage.chat.state, "drafter_failed", name == "reload")
        stage.chat.prompt.text = "some words"
        stage.chat.prompt.move_cursor((0, 4))
        await stage.pilot.press(key)
        for _ in range(50):
            if called:
                break
            await stage.pilot.pause(0.01)
    return called == [arguments]


@pytest.mark.parametrize("kind", OWNERS)
async def test_every_key_does_its_work_with_the_prompt_focused(kind: type[DOMNode]):
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        owner = owner_of(stage, kind)
        bindings = [*Binding.make_bindings(kind.BINDINGS)]
        assert [(b.key, b.action) for b in bindings if not await runs(stage, b.key, b, owner)] == []
        assert stage.chat.focused is stage.chat.prompt
        assert bindings


@pytest.mark.slow
@pytest.mark.parametrize("kind", OWNERS)
async def test_every_key_does_its_work_while_an_answer_is_written(kind: type[DOMNode]):
    """But the one to reload, which is to retry then."""
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine) as stage:
        await stage.begins("hi")
        owner = owner_of(stage, kind)
        bindings = [b for b in Binding.make_bindings(kind.BINDINGS) if b.action != "reload"]
        assert [(b.key, b.action) for b in bindings if not await runs(stage, b.key, b, owner)] == []
        assert stage.chat.focused is stage.chat.prompt
        assert bindings


@pytest.mark.slow
@pytest.mark.parametrize("kind", OWNERS)
async def test_every_key_with_a_name_can_be_another(kind: type[DOMNode]):
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        for binding in (b for b in kind.BINDINGS if isinstance(b, Binding) and b.id):
            stage.app.set_keymap({str(binding.id): FREE})
            assert await runs(stage, FREE, binding, owner_of(stage, kind)), binding.id


def test_no_key_is_one_that_terminals_cannot_tell_from_another():
    keys = Counter(key for keys in KNOWN.values() for key in keys)
    assert keys.keys().isdisjoint({"ctrl+m", "ctrl+i", "ctrl+left_square_bracket"})
    assert [key for key, count in keys.items() if count > 1] == ["ctrl+r"], "which reloads while it can, else retries"


async def test_a_key_from_the_settings_works_and_the_one_it_was_does_not():
    async with open_chat(ScriptedEngine(HELLO), tuning=own_keys({"tokens": "Ctrl+T"})) as stage:
        await stage.ready()
        await stage.pilot.press("f3")
        assert stage.chat.transcript.view == "markdown"
        await stage.pilot.press("ctrl+t")
        await stage.until(lambda: stage.chat.transcript.view == "tokens")


async def test_what_is_wrong_in_the_keymap_is_said_at_the_start():
    wrong = {"tokns": "f9", "speed": "ctrl+m", "help": "f77", "stop": "x", "tokens": "f2"}
    async with open_chat(ScriptedEngine(HELLO), tuning=own_keys(wrong), size=(100, 40)) as stage:
        await stage.sees(
            "[keymap] tokns: there is no such id. Did you mean tokens?",
            "[keymap] speed: ctrl+m is Enter in a terminal.",
            "[keymap] help: f77 is not a key.",
            "[keymap] stop: x is needed for typing.",
            "[keymap] tokens: f2 no longer means speed.",
        )
        await stage.pilot.press("f2", "x")
        await stage.until(lambda: stage.chat.transcript.view == "tokens")
        assert stage.chat.prompt.text == "x"


async def test_a_key_taken_from_the_program_by_the_prompt_is_the_prompts():
    """The program's own keys run first, so taking one across must take it from there."""
    async with open_chat(ScriptedEngine(HELLO), tuning=own_keys({"newline": "ctrl+q"})) as stage:
        await stage.ready()
        await stage.pilot.press("a", "ctrl+q", "b")
        assert stage.chat.prompt.text == "a\nb"


def test_two_ids_on_one_key_and_keys_that_change_places():
    known = {"speed": Bound(("f2",)), "tokens": Bound(("f3",)), "rejects": Bound(("shift+f3", "f15"))}
    both = remap({"speed": "f9", "tokens": "f9"}, known)
    assert both.keys == {"speed": "f9", "tokens": NO_KEY}
    assert both.troubles == ("[keymap] tokens: f9 already belongs to speed.",)
    assert remap({"speed": "f3", "tokens": "f2"}, known).troubles == ()
    assert remap({"close": "U"}, {"close": Bound(("q",), writes=False)}).keys == {"close": "U"}
    assert remap({"speed": "shift+f4"}, known).keys == {"speed": "shift+f4,f16,f14"}
    assert remap({"speed": "f15,f9"}, known).keys == {"speed": "f15,f9", "rejects": "shift+f3"}


async def test_enter_can_break_the_line_and_ctrl_j_send():
    async with open_chat(ScriptedEngine(HELLO), tuning=own_keys({}, "ctrl+j")) as stage:
        await stage.ready()
        await stage.pilot.press("a", "enter", "b")
        assert stage.chat.prompt.text == "a\nb"
        await stage.pilot.press("ctrl+j")
        await stage.until(lambda: stage.engine.requests)
        assert stage.engine.requests[0].messages is not None
        assert stage.engine.requests[0].messages[0].content == "a\nb"


@pytest.mark.slow
async def test_end_follows_the_answer_again_while_nothing_is_being_written():
    async with scrolled_up() as stage:
        await stage.write("ab")
        await stage.pilot.press("home", "end", "!")
        assert stage.chat.prompt.text == "ab!"
        assert "line 29" not in stage.seen
        await stage.pilot.press("ctrl+u", "end")
        await stage.sees("line 29")
        stage.engine.permit()
        await stage.sees("line 39", "idle")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("width", [60, 80, 120])
async def test_the_line_of_keys_shows_the_most_useful_ones_whole(width: int):
    async with open_chat(ScriptedEngine(HELLO), size=(width, 20)) as stage:
        await stage.sees("Enter Send", "F1 Help", "^P Menu", "^N New", "^Q Quit")
        assert "Esc" not in stage.seen.splitlines()[-1], "there is nothing to stop"
        assert "F3" not in stage.seen.splitlines()[-1], "there is no answer with tokens"
        assert ("F2 Speed" in stage.seen) == (width >= 80)
        assert max(key.region.right for key in stage.chat.query(FooterKey)) <= width
        await stage.pilot.resize_terminal(60, 20)
        await stage.until(lambda: "F2 Speed" not in stage.seen)
        await stage.sees("^Q Quit")
        await stage.send("/keys")
        await stage.until(lambda: max(key.region.right for key in stage.chat.query(FooterKey)) <= 30)


async def test_the_line_of_keys_shows_what_acts_now():
    def keys(stage: Stage) -> str:
        return stage.seen.splitlines()[-1]

    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine, size=(100, 30)) as stage:
        await stage.begins("hi")
        await stage.until(lambda: "Esc Stop" in keys(stage))
        engine.permit()
        await stage.ready()
        await stage.until(lambda: "Esc" not in keys(stage))
        await stage.pilot.press("f2")
        await stage.until(lambda: "Esc Back" in keys(stage))
        await stage.pilot.press("escape")
        await stage.until(lambda: "Esc" not in keys(stage) and "F2 Speed" in keys(stage))
        await stage.pilot.resize_terminal(79, 30)
        await stage.until(lambda: "F2" not in keys(stage))


def line_key(key: str, word: str, action: str) -> Key:
    return Key(key, key, word, action, False, "")


USUAL = [
    line_key("Enter", "Send", "send"),
    line_key("F1", "Help", "help"),
    line_key("^P", "Menu", "command_palette"),
    line_key("^N", "New", "new"),
    line_key("^Q", "Quit", "quit"),
    line_key("F2", "Speed", "speed"),
    line_key("^B", "Chats", "chats"),
    line_key("F5", "Speculation", "spec"),
    line_key("F3", "Tokens", "tokens"),
    line_key("Esc", "Stop", "stop"),
]
RELOAD = line_key("^R", "Reload", "reload")
STAYING = [key for key in USUAL if key.action not in PASSING]


@pytest.mark.parametrize("width", range(60, 140))
def test_keys_that_come_and_go_move_none_that_stays(width: int):
    """Whichever of them act now, each key is in its own columns, and the most useful ones are there."""
    passing, columns = [key for key in (*USUAL, RELOAD) if key.action in PASSING], dict[str, int]()
    for bits in range(1 << len(passing)):
        now = [key for index, key in enumerate(passing) if bits >> index & 1]
        shown = by_column(in_columns([*STAYING, *now], [*USUAL, *now[len(now) - (RELOAD in now) :]], width))
        assert all(columns.setdefault(key, first) == first for first, key, _ in shown)
        assert {"Enter", "F1", "^P", "^N", "^Q", *(["^R"] if RELOAD in now else [])} <= {key for _, key, _ in shown}
        assert "Esc" in {key for _, key, _ in shown} or USUAL[-1] not in now or RELOAD in now


@pytest.mark.parametrize("width", [80, 100, 120])
async def test_a_second_click_in_the_same_columns_does_what_the_first_did(width: int, monkeypatch: pytest.MonkeyPatch):
    """It quit: "Esc Back" came, and moved Quit below the mouse."""
    monkeypatch.setattr("localspec.tui.terminal.footer_key.READ_SECONDS", 0)
    async with open_chat(ScriptedEngine(HELLO), size=(width, 30)) as stage:
        await stage.ready()
        (at,) = [key.region for key in stage.chat.query(FooterKey) if key.key == "f2"]
        for fold in ("folded", "whole", "hidden"):
            await stage.pilot.click(offset=(at.x + 1, at.y))
            await stage.until(lambda fold=fold: stage.chat.speed.fold == fold)
            await stage.until(lambda fold=fold: ("Esc Back" in stage.seen) == (fold != "hidden"))


async def test_a_click_is_not_for_a_key_that_has_just_come(monkeypatch: pytest.MonkeyPatch):
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine, size=(100, 30)) as stage:
        await stage.begins("hi")
        (stop,) = [key for key in stage.chat.query(FooterKey) if key.key == "escape"]
        monkeypatch.setattr("localspec.tui.terminal.footer_key.READ_SECONDS", 600)
        await stage.pilot.click(stop)
        assert stage.chat.state.answering
        monkeypatch.setattr("localspec.tui.terminal.footer_key.READ_SECONDS", 0)
        await stage.pilot.click(stop)
        await stage.sees("stopped")


async def test_a_key_of_the_line_that_is_said_anew_is_like_one_that_is_made_anew():
    off = Key("f9", "F9", "Model", "model", True, "not now")
    on = Key("escape", "Esc", "Stop", "stop", False, "")
    letter = Key("c", " c", "copy", "", False, "", is_letter=True)
    async with open_chat(ScriptedEngine(HELLO), size=(100, 20)) as stage:
        await stage.ready()
        shown = stage.chat.query_one(KeysLine).query(FooterKey).first()
        for key in (off, on, letter, off, letter, on):
            show_anew(shown, key)
            made = footer_key(key)
            for one in (shown, made):
                assert (one.key, one.action, one._disabled) == (key.key, key.action, key.is_off)
                assert (one.tooltip or "", one.compact) == (key.tooltip, key.is_letter)
            assert shown.classes == made.classes
            await stage.pilot.pause()
            assert stage.seen.splitlines()[-1].split()[:2] == [key.display.strip(), key.word]
            assert shown.size.width == key.cells


async def test_the_keys_of_tokens_and_drafts_vanish_where_they_do_nothing():
    def keys() -> str:
        return stage.seen.splitlines()[-1]

    first, second = ScriptedEngine(HELLO, paused=True), ScriptedEngine(HELLO)
    async with open_chat(first, second, size=(120, 30)) as stage:
        await stage.sees("F1 Help", "F2 Speed")
        assert "F3" not in keys()
        assert "F5" not in keys(), "the model is still being loaded"
        first.permit(1)
        await stage.ready()
        await stage.until(lambda: "F5 Speculation" in keys())
        assert "F3" not in keys()
        first.permit(3)
        await stage.asks("hi", "Hello there")
        await stage.until(lambda: "F3 Tokens" in keys() and "F5 Speculation" in keys())
        first.die()
        await stage.until(lambda: "F5" not in keys() and "F3 Tokens" in keys())
        await stage.pilot.press("ctrl+r")
        await stage.ready()
        await stage.until(lambda: "F5 Speculation" in keys())
        await stage.pilot.press("ctrl+n")
        await stage.until(lambda: "F3" not in keys() and "F5 Speculation" in keys())
        await stage.pilot.press("f3")  # the view of tokens, which the key leaves again
        await stage.until(lambda: "F3 Tokens" in keys())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["f1", "/help"])
async def test_help_lists_commands_and_keys_as_they_are_mapped(how: str):
    async with open_chat(ScriptedEngine(HELLO), size=(80, 140), tuning=own_keys({"speed": "f4"})) as stage:
        await stage.ready()
        await (stage.pilot.press(how) if how == "f1" else stage.send(how))
        await stage.until(lambda: isinstance(stage.app.screen, HelpScreen))
        await stage.sees("/theme [NAME]", "choose a colour theme", "F4  ", "An answer's main figures", "Shift+F3  ")
        await stage.sees("Ctrl+J Alt+Enter", "New line", "To the end")
        assert "F15" not in stage.seen
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.screen is stage.chat)
        await stage.pilot.press("a")
        assert stage.chat.prompt.text == "a"


async def test_help_lists_the_letters_for_a_message_and_the_keys_beside_the_chat():
    async with open_chat(ScriptedEngine(HELLO), size=(80, 220)) as stage:
        await stage.ready()
        assert {letter.id for letter in LETTERS} == stage.chat.letters.actions.keys()
        await stage.pilot.press("f1")
        await stage.sees("At a message (Alt+↑ goes to one), with an empty prompt", "In the chat list", "While finding")
        await stage.sees("↑  ", "Up, and to what is attached;")
        _, of_message, beside = re.split("At a message|In the chat list", stage.seen)
    for letter in LETTERS:
        assert spelled(letter.key) in keys_in(of_message)
    bindings = [binding for widget in (ChatList, Sidebar, Words, FindBar) for binding in widget.BINDINGS]
    for binding in Binding.make_bindings(bindings):
        assert spelled(binding.key) in keys_in(beside)
        assert binding.description in beside


async def test_the_help_says_of_a_key_what_the_readme_says_and_the_most_useful_keys_come_first():
    (table,) = re.findall(r"^## The chat in eight keys\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    cells = [cell.strip() for line in table.splitlines()[3:] for cell in line.strip("|").split("|") if cell.strip()]
    learned = {key: does.split(" (")[0].casefold() for key, does in zip(cells[::2], cells[1::2], strict=True)}
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.asks("hi", "Bye.", "idle")
        found = {keys: does.casefold() for keys, does in active_keys(stage.chat)}
    assert len(learned) == 8
    assert learned.items() <= found.items()
    assert [*found][:8] == ["F1", "F2", "F3", "Shift+F3", "F5", "F6", "F7", "Esc"]


async def test_the_list_of_keys_begins_with_the_function_keys():
    async with open_chat(ScriptedEngine(HELLO), size=(140, 60)) as stage:
        await stage.asks("hi", "Bye.", "idle")
        await stage.send("/keys")
        await stage.sees("Cursor down", "What you see")
        assert all(stage.seen.index(f"{key} ") < stage.seen.index("Cursor down") for key in ("F2", "F3", "F6", "Esc"))


def keys_in(page: str) -> list[str]:
    """The left column of a part of the page with all commands and keys."""
    return [key for line in page.splitlines() for key in line.strip(" │").split("  ")[0].split()]


APPEND = """import sys
file = open(sys.argv[-1], "a")
file.write(" edited\\x1b[2J\\n")
"""


async def test_the_prompt_can_be_written_in_an_editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    script = tmp_path / "editor.py"
    script.write_text(APPEND)
    monkeypatch.setenv("VISUAL", shlex.join([sys.executable, str(script)]))
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        monkeypatch.setattr(stage.app, "suspend", nullcontext)
        await stage.write("a question")
        await stage.pilot.press("ctrl+g")
        await stage.until(lambda: stage.chat.prompt.text == "a question edited␛[2J")
        assert not stage.chat.query(Question)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("editor", "says"),
    [
        ("", "There is no editor. Set EDITOR to one"),
        ("/no/such/editor", "The editor /no/such/editor cannot be used"),
        ("false", "The editor false ended with 1"),
        ("'", "The name of the editor cannot be read"),
    ],
)
async def test_an_editor_that_fails_loses_nothing(monkeypatch: pytest.MonkeyPatch, editor: str, says: str):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        monkeypatch.setattr(stage.app, "suspend", nullcontext)
        await stage.write("a question")
        await stage.pilot.press("ctrl+g")
        await stage.sees(says, "a question")


async def test_where_the_terminal_cannot_be_lent_the_text_stays(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EDITOR", "true")
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.write("a question")
        await stage.pilot.press("ctrl+g")
        await stage.sees("Cannot open an editor in this terminal.", "a question")
