"""A message that was written and not sent is there again when its chat is: after quitting, never after --no-history."""

from __future__ import annotations

import sqlite3

import pytest
from click.testing import CliRunner
from textual import events

from localspec.cli.main import cli
from localspec.core import paths
from localspec.history import History, Unsent, recall
from localspec.tui.chat.attachments import PASTE_CHARACTERS
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat
from tests.support.chats import chat
from tests.support.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.heavy

LONG = "a line of a long paste\n" * PASTE_CHARACTERS


def unsent() -> list[tuple[str | None, str]]:
    db = sqlite3.connect(paths.history_file())
    try:
        return db.execute("SELECT conversation_id, content FROM unsent ORDER BY id").fetchall()
    finally:
        db.close()


async def finds(stage: Stage, text: str) -> None:
    await stage.until(lambda: stage.chat.prompt.text == text)


@pytest.mark.slow
async def test_a_new_chats_message_is_there_at_the_next_start_with_what_was_attached():
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        stage.app.post_message(events.Paste(LONG))
        await stage.write("half a thou")
        await stage.until(lambda: stage.chat.prompt.pills.attachments)
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await finds(stage, "half a thou")
        assert [one.text for one in stage.chat.prompt.pills.attachments] == [LONG]
        await stage.hints("was not sent")
        assert unsent() == [], "it is in the prompt: whoever deletes it there wants it gone"
        await stage.pilot.press("enter")
        await stage.sees("Bye.")
    assert unsent() == []


async def test_each_chat_has_its_own():
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.asks("hi", "Bye.")
        await stage.ready()
        await stage.write("more of this")
    past = recall()
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.write("something new")
    assert unsent() == [(past.chat.id, "more of this"), (None, "something new")]
    async with kept_chat(ScriptedEngine(HELLO), past=past) as stage:
        await finds(stage, "more of this")
        stage.chat.prompt.clear()
        await stage.pilot.press("ctrl+n")
        await finds(stage, "something new")
        stage.chat.prompt.clear()
    assert unsent() == []


async def test_that_it_is_there_is_not_said_in_the_next_chat(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("localspec.tui.panels.stats_line.HINT_SECONDS", 600.0)
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.write("half a thou")
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await finds(stage, "half a thou")
        await stage.hints("was not sent")
        await stage.pilot.press("ctrl+u", "ctrl+n")
        await stage.until(lambda: not stage.chat.status.hint)
        assert not stage.chat.prompt.text


async def test_what_was_made_of_an_earlier_message_is_kept_and_that_message_is_not():
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.asks("hi", "Bye.")
        await stage.ready()
        await stage.pilot.press("up")
        await finds(stage, "hi")
    assert unsent() == []
    async with kept_chat(ScriptedEngine(HELLO), past=recall()) as stage:
        await stage.ready()
        await stage.pilot.press("up")
        await finds(stage, "hi")
        await stage.pilot.press(" ", "h", "o")
    assert [text for _, text in unsent()] == ["hi ho"]


async def test_without_a_history_nothing_is_written():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.write("a secret")
    kept = [file for file in paths.history_file().parent.rglob("*") if file.is_file()]
    assert [file for file in kept if b"a secret" in file.read_bytes()] == []


def test_it_is_deleted_with_its_chat_and_a_new_chats_with_the_last_one():
    with History() as history:
        one, other = (chat(history, text)[-1].chat_id for text in ("one", "other"))
        for chat_id, text in ((one, "of one"), (other, "of the other"), (None, "of none")):
            history.keep_unsent(chat_id, Unsent(text))
        history.delete(one)
        assert unsent() == [(other, "of the other"), (None, "of none")]
    assert CliRunner().invoke(cli, ["history", "rm", "--all", "--yes"]).exit_code == 0
    assert unsent() == []
    for file in paths.history_file().parent.iterdir():
        assert b"of none" not in file.read_bytes()


def test_a_message_of_a_chat_that_is_gone_is_a_new_chats_and_two_programs_lose_none():
    with History() as history:
        history.keep_unsent("gone", Unsent("first"))
        history.keep_unsent(None, Unsent("second"))
        found = history.take_unsent(None)
        assert found is not None
        assert found.content == "first\n\nsecond"
        assert history.take_unsent(None) is None


def test_what_was_written_to_a_server_follows_to_no_other_and_not_back():
    with History() as history:
        history.keep_unsent(None, Unsent("for box", server="box"))
        history.keep_unsent(None, Unsent("for here"))
        assert history.take_unsent(None, "other") is None
        here, box = history.take_unsent(None), history.take_unsent(None, "box")
        assert here is not None
        assert box is not None
        assert (here.content, box.content) == ("for here", "for box")
