"""A line to write in takes no more than a line, however it comes."""

from __future__ import annotations

import pytest

from localspec.history import History, NewChat
from localspec.tui.panels.field import LONGEST, Field
from localspec.tui.terminal.driver import TerminalParser
from tests.support.chat_stage import HELLO, kept_chat
from tests.support.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.heavy

TITLE = "a title that another program wrote " * 50
FIELDS = {"chat-search": ("ctrl+b", "slash"), "find-words": ("ctrl+f",), "chat-name": ("ctrl+b", "r")}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FIELDS)
async def test_a_megabyte_is_refused_and_a_line_is_not(name: str):
    with History() as history:
        history.begin(NewChat("guide", title="one"), "one")
    async with kept_chat(ScriptedEngine(HELLO), size=(150, 30)) as stage:
        await stage.ready()
        await stage.until(lambda: stage.chat.sidebar.list.row)
        await stage.pilot.press(*FIELDS[name])
        field = stage.chat.query_one(f"#{name}", Field)
        await stage.until(lambda: field.has_focus)
        await stage.pilot.press("end", "ctrl+u")
        await stage.write("x" * 1_000_000)
        stage.app.copy_to_clipboard("y" * 1_000_000)
        await stage.pilot.press("ctrl+v")
        await stage.write("z" * LONGEST)
        await stage.pilot.press("q")
        await stage.until(lambda: field.value)
        assert field.value == "z" * LONGEST


PERSIAN, FAMILY = "می\u200cخواهم", "👨\u200d👩\u200d👧"
TYPED = f"{PERSIAN} {FAMILY} 1\u00a0000\u3000a\u00adb"
REORDERING = "\u202e\u2066\u200f\U000e0041\x9b"


@pytest.mark.parametrize("name", ["prompt", "chat-search", "find-words"])
async def test_joiners_and_other_blanks_are_written_and_what_reorders_a_line_is_not(name: str):
    """Python calls them unprintable, and Textual drops them: میخواهم for می‌خواهم, three people for one family."""
    async with kept_chat(ScriptedEngine(HELLO), size=(150, 30)) as stage:
        await stage.ready()
        await stage.pilot.press(*FIELDS.get(name, ()))
        field = stage.chat.query_one(f"#{name}")
        await stage.until(lambda: field.has_focus)
        for key in TerminalParser().feed(f"old{TYPED}{REORDERING}"):
            stage.app.post_message(key)
        await stage.until(lambda: f"old{TYPED}" in (stage.chat.prompt.text, getattr(field, "value", "")))
        await stage.pilot.press("shift+home")
        for key in TerminalParser().feed("\u200d"):
            stage.app.post_message(key)
        await stage.until(lambda: "\u200d" in (stage.chat.prompt.text, getattr(field, "value", "")))


async def test_a_longer_title_is_whole_and_can_be_made_shorter():
    with History() as history:
        history.begin(NewChat("guide", title=TITLE), "one")
    async with kept_chat(ScriptedEngine(HELLO), size=(150, 30)) as stage:
        await stage.ready()
        await stage.until(lambda: stage.chat.sidebar.list.row)
        await stage.pilot.press("ctrl+b", "r")
        field = stage.chat.sidebar.name_field
        await stage.until(lambda: field.has_focus)
        assert field.value == TITLE.strip()
        await stage.pilot.press("end", "backspace")
        await stage.until(lambda: field.value == TITLE.strip()[:-1])


async def test_what_search_is_given_keeps_to_the_field():
    async with kept_chat(ScriptedEngine(HELLO), size=(150, 30)) as stage:
        await stage.ready()
        await stage.send(f"/search {'x' * (LONGEST + 1)}")
        await stage.until(lambda: stage.chat.sidebar.search.value == "x" * LONGEST)
