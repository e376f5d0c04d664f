"""[keymap] reaches every screen: the new key works there, the old one does not, and texts name the new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace
from textual.binding import Binding, BindingType
from textual.screen import Screen

from localspec.core.events import SpecCard
from localspec.core.requests import GenerateRequest
from localspec.tui.app import ChatApp
from localspec.tui.control.tuning import Tuning
from localspec.tui.keys import ids
from localspec.tui.keys.ids import known_ids
from localspec.tui.keys.keymap import Bound, bound, remap, spelled
from localspec.tui.panels.disk_tab import ModelPick
from localspec.tui.screens.compare import CompareScreen
from localspec.tui.screens.compare_methods import CompareMethod
from localspec.tui.screens.dialog import Dialog, DialogButton
from localspec.tui.screens.help import HelpScreen
from localspec.tui.screens.link import LinkScreen
from localspec.tui.screens.models import ModelLists, ModelsScreen
from localspec.tui.screens.overflow import Overflow
from localspec.tui.screens.sampling_form import SamplingForm
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat, own_keys
from tests.support.scripted_engine import READY, ScriptedEngine

pytestmark = pytest.mark.heavy

ways = (CompareMethod("plain", False), CompareMethod("drafted", True))
SHELF = ModelLists(list, lambda _: [], str, list, ModelPick("guide", "auto"))
OVER: dict[str, Callable[[Stage], Screen[Any]]] = {
    "compare.close": lambda _: CompareScreen(GenerateRequest(), ways, lambda _: None),
    "models.close": lambda stage: ModelsScreen(SHELF, stage.chat.library),
    "asking.leave": lambda _: Dialog("Delete it?", ["It is large."], [DialogButton("yes", "Delete it")]),
    "form.close": lambda _: SamplingForm(Tuning()),
    "overflow.leave": lambda _: Overflow("The chat is full.", 2),
    "link.leave": lambda _: LinkScreen("https://example.org/"),
    "help.close": lambda _: HelpScreen([("F1", "Help")]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OVER)
async def test_what_lies_over_the_chat_closes_with_the_users_key_and_says_which(name: str):
    async with open_chat(ScriptedEngine(HELLO), tuning=own_keys({name: "f9"}), size=(100, 40)) as stage:
        await stage.ready()
        opened = OVER[name](stage)
        stage.app.push_screen(opened)
        await stage.until(lambda: stage.app.screen is opened)
        await stage.sees("F9")
        await stage.pilot.press("escape")
        assert stage.app.screen is opened
        await stage.pilot.press("f9")
        await stage.until(lambda: stage.app.screen is stage.chat)


async def test_a_letter_may_be_a_key_where_nothing_is_written():
    chosen: list[object] = []
    async with open_chat(ScriptedEngine(HELLO), tuning=own_keys({"overflow.drop": "x"})) as stage:
        await stage.ready()
        stage.app.push_screen(Overflow("The chat is full.", 2), chosen.append)
        await stage.sees("x  Drop the oldest 2 turns")
        await stage.pilot.press("d", "x")
        await stage.until(lambda: chosen == ["drop-oldest"])


async def test_the_letters_at_a_message_can_be_others():
    keys = own_keys({"msg.copy": "x", "msg.older": "f9", "msg.delete": "y"})
    async with open_chat(ScriptedEngine(HELLO), tuning=keys, size=(100, 40)) as stage:
        await stage.ready()
        await stage.send("hi")
        await stage.sees("Bye.", "idle")
        await stage.pilot.press("alt+up")
        await stage.sees("x copy  c code", "y delete")
        await stage.pilot.press("x")
        await stage.sees("Copied.")
        await stage.pilot.press("f9")
        await stage.sees("There is no version before this one.")
        await stage.pilot.press("y")
        await stage.sees("Press y again to delete this message")
        await stage.pilot.press("d")
        await stage.until(lambda: stage.chat.prompt.text == "d")


@pytest.mark.slow
async def test_the_keys_of_the_line_that_finds_can_be_others():
    async with open_chat(ScriptedEngine(HELLO), tuning=own_keys({"find.next": "f9", "find.previous": "f8"})) as stage:
        await stage.ready()
        await stage.send("hello")
        await stage.sees("Bye.", "idle")
        await stage.pilot.press("ctrl+f", *"hello", "f9")
        await stage.sees("1 of 2")
        await stage.pilot.press("down")
        await stage.pilot.press("f8")
        await stage.sees("2 of 2")


async def test_the_keys_beside_the_chats_can_be_others():
    keys = own_keys({"chats.search": "x", "chats.pin": "f9"})
    async with kept_chat(ScriptedEngine(HELLO), tuning=keys) as stage:
        await stage.ready()
        await stage.send("hi")
        await stage.sees("Bye.", "idle")
        await stage.pilot.press("ctrl+b")
        await stage.sees("Enter open · x search · F9 pin", "Today")
        panel = stage.chat.sidebar
        await stage.pilot.press("f9")
        await stage.sees("Pinned")
        await stage.pilot.press("x")
        await stage.until(lambda: stage.chat.focused is panel.search)
        assert panel.search.value == ""
        panel.list.focus()
        await stage.until(lambda: panel.list.has_focus)
        await stage.pilot.press("slash")
        await stage.until(lambda: panel.search.value == "/")


async def test_the_page_of_keys_and_the_footer_show_them_as_they_are_mapped():
    keys = own_keys({"chats.pin": "f8", "find.next": "f9", "msg.copy": "x", "models.close": "f10", "new": "f12"})
    async with open_chat(ScriptedEngine(HELLO), tuning=keys, size=(100, 260)) as stage:
        await stage.ready()
        await stage.sees("F12 New")
        await stage.pilot.press("f1")
        await stage.sees("In dialogs", "F10")
        rows = {" ".join(line.strip(" │").split()) for line in stage.seen.splitlines()}
        assert {"F8 Pin", "x copy", "F10 the models: Close", "F12 Begin a new chat", "Enter F9 Next"} <= rows
        assert {"F8 chats.pin, usually p", "F10 models.close, usually Esc", "F12 new, usually Ctrl+N"} <= rows


async def test_the_page_of_keys_names_what_the_settings_change_and_what_they_take_away():
    async with open_chat(ScriptedEngine(HELLO), tuning=own_keys({"tokens": "f2"}, "ctrl+j"), size=(100, 60)) as stage:
        await stage.ready()
        await stage.pilot.press("f1")
        await stage.sees("Keys that your settings change")
        rows = {" ".join(line.strip(" │▁▂▃▄▅▆▇█").split()) for line in stage.seen.splitlines()}
        assert {"F2 tokens, usually F3", "Unbound speed, usually F2", "Ctrl+J send, usually Enter"} <= rows
    async with open_chat(ScriptedEngine(HELLO), size=(100, 320)) as stage:
        await stage.ready()
        await stage.pilot.press("f1")
        await stage.sees("Commands", "Names of all keys, for [keymap] in config.toml")
        assert "your settings change" not in stage.seen
        words = stage.seen.replace("│", " ").split()
        assert [name for name in stage.app.keys if name not in words] == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("opener", "title"), [("spec", "Drafters for"), ("help", "In dialogs"), ("tree", "goes there")]
)
async def test_the_key_that_opens_a_page_closes_it_whichever_it_is(opener: str, title: str):
    engine = ScriptedEngine(HELLO, opening=[replace(READY, spec=SpecCard("off", reason="none"))])
    async with open_chat(engine, tuning=own_keys({opener: "f8"}), size=(100, 260)) as stage:
        await stage.asks("hi", "Bye.")
        await stage.ready()
        await stage.pilot.press("f8")
        await stage.sees(title)
        await stage.pilot.press("f5", "f7", "f1")
        await stage.sees(title)
        await stage.pilot.press("f8")
        await stage.until(lambda: stage.app.screen is stage.chat)


async def test_an_id_that_leaves_a_shared_key_leaves_it_to_the_other():
    """Ctrl+R reloads while it can, else retries; Textual would take it from both."""
    async with open_chat(ScriptedEngine(HELLO, HELLO), tuning=own_keys({"reload": "f9"})) as stage:
        await stage.ready()
        await stage.send("hi")
        await stage.sees("Bye.", "idle")
        await stage.pilot.press("ctrl+r")
        await stage.until(lambda: len(stage.engine.requests) == 2)


def test_a_key_leaves_only_those_that_would_hear_it():
    known = {
        "quit": Bound(("ctrl+q",)),
        "stop": Bound(("escape",), "chat"),
        "send": Bound(("enter",), "chat.prompt"),
        "pin": Bound(("p",), "chat.list", writes=False),
        "close": Bound(("escape",), "models", writes=False),
    }
    assert remap({"close": "p"}, known).keys == {"close": "p"}
    assert remap({"pin": "enter"}, known).keys == {"pin": "enter"}
    assert remap({"pin": "escape"}, known).keys == {"pin": "escape", "stop": "unbound"}
    assert remap({"close": "ctrl+q"}, known).troubles == ("[keymap] close: ctrl+q no longer means quit.",)
    assert remap({"send": "x"}, known).troubles == ("[keymap] send: x is needed for typing.",)


@pytest.mark.parametrize(("key", "stands"), [("slash", "/"), ("left_square_bracket", "["), ("minus", "-"), ("a", "a")])
def test_a_key_is_spelled_as_it_stands_on_a_keyboard(key: str, stands: str):
    assert spelled(key) == stands


def test_every_id_there_is_can_be_given_a_key_and_stands_once(monkeypatch: pytest.MonkeyPatch):
    """Counted where they are bound: of two that were the same, the dict would have the last."""
    lists: list[list[BindingType]] = []

    def listed(bindings: Iterable[BindingType], heard: str = "", *, writes: bool = True) -> dict[str, Bound]:
        lists.append([*bindings])
        return bound(lists[-1], heard, writes=writes)

    monkeypatch.setattr(ids, "bound", listed)
    known = known_ids(ChatApp.BINDINGS)
    counted = Counter(b.id for each in lists for b in each if isinstance(b, Binding) and b.id)
    assert {"quit", "stop", "send", "msg.copy", "find.next", "chats.pin", "compare.close", "help.close"} <= known.keys()
    assert [name for name, count in counted.items() if count > 1] == []
    assert counted.keys() == known.keys()
    assert all(each.keys and all(each.keys) for each in known.values())
