"""A message that was written and not sent is there again in the chat that it was written in: after quitting, after a
kill, after another chat. Never after --no-history."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from textual import events

from localspec.cli.main import cli
from localspec.core import paths
from localspec.core.process import Process, this
from localspec.history import History, StoredChat, Unsent, recall
from localspec.tui.chat.attachments import PASTE_CHARACTERS
from localspec.tui.control.unsent import BACK, EDIT_BACK, NO_EDIT
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat
from tests.support.chats import chat
from tests.support.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.heavy

LONG = "a line of a long paste\n" * PASTE_CHARACTERS
GONE = Process(2**22 + 1, 1.0)  # a number that no process has


def unsent() -> list[tuple[str | None, str]]:
    db = sqlite3.connect(paths.history_file())
    try:
        return db.execute("SELECT conversation_id, content FROM unsent ORDER BY id").fetchall()
    finally:
        db.close()


async def finds(stage: Stage, text: str) -> None:
    await stage.until(lambda: stage.chat.prompt.text == text)


def kept(*texts: str) -> tuple[StoredChat, ...]:
    """Chats that begin with these."""
    with History() as history:
        return tuple(history.find_chat(chat(history, text, "An answer.")[0].chat_id) for text in texts)


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.tui.screens.chat.SAVE_SECONDS", 0.02)


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
        await stage.pilot.press("enter")
        await stage.sees("Bye.")
    assert unsent() == []


async def test_it_is_kept_once_typing_rests_and_is_no_more_what_was_sent_or_deleted(looks_often: None):  # noqa: ARG001
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        for text in ("half", " a thou"):
            await stage.write(text)
        await stage.until(lambda: unsent() == [(None, "half a thou")])
        await stage.pilot.press("ctrl+u")
        await stage.until(lambda: unsent() == [])
        for file in paths.history_file().parent.iterdir():
            assert b"half a thou" not in file.read_bytes()
        await stage.asks("half a thought", "Bye.")
        await stage.ready()
        await stage.write("and")
        await stage.until(lambda: [text for _, text in unsent()] == ["and"])
        await stage.pilot.press("escape")
        with History() as history:
            assert unsent() == [(history.chats()[0].id, "and")]


def test_what_a_killed_program_had_in_its_prompt_is_found_and_what_is_in_a_running_one_is_not():
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    there = Process(sleeper.pid, psutil.Process(sleeper.pid).create_time())
    with sleeper, History() as history:
        history.keep_unsent(None, Unsent("of a killed one"), writer=GONE)
        taken = history.keep_unsent(None, Unsent("of a running one"), writer=there)
        (found,) = history.unsent(None)
        assert found.content == "of a killed one"
        history.keep_unsent(None, Unsent("now ours"), instead_of=(found.id, *taken), writer=this())
        assert [text for _, text in unsent()] == ["of a running one", "now ours"], "what is another's stays"
        sleeper.kill()
        sleeper.wait()
        assert [one.content for one in history.unsent(None)] == ["of a running one", "now ours"]


async def test_what_was_found_is_kept_until_it_is_sent(looks_often: None):  # noqa: ARG001
    with History() as history:
        history.keep_unsent(None, Unsent("half a thou"), writer=GONE)
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await finds(stage, "half a thou")
        await stage.until(lambda: unsent() == [(None, "half a thou")])
        await stage.pilot.press("ctrl+u")
        await stage.until(lambda: unsent() == [])


async def test_what_comes_back_shows_the_files_that_it_will_be_sent_with(tmp_path: Path):
    """Which of those that it mentions were removed is not kept."""
    (tmp_path / "calc.py").write_text("text")
    with History() as history:
        history.keep_unsent(None, Unsent(f"what is @{tmp_path / 'calc.py'}?"), writer=GONE)
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.sees("calc.py, 4 characters]")


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


async def test_it_stays_in_its_chat_when_another_is_opened_from_the_list():
    one, other = kept("one", "other")
    async with kept_chat(ScriptedEngine(HELLO), past=recall(one.id)) as stage:
        await stage.until(lambda: stage.chat.chats.chat_id == one.id)
        await stage.write("of one")
        await stage.chat.chats.choose(other.id, None, "")
        await stage.until(lambda: stage.chat.chats.chat_id == other.id)
        assert stage.chat.prompt.text == ""
        await stage.write("of the other")
        await stage.chat.chats.choose(one.id, None, "")
        await finds(stage, "of one")
        await stage.hints(BACK)
    assert unsent() == [(other.id, "of the other"), (one.id, "of one")]


async def test_it_goes_along_to_a_new_chat_and_where_nothing_can_be_kept():
    (one,) = kept("one")
    async with kept_chat(ScriptedEngine(HELLO), past=recall(one.id)) as stage:
        await stage.ready()
        await stage.write("of one")
        await stage.pilot.press("ctrl+n")
        await stage.sees("Ask anything.")
        assert stage.chat.prompt.text == "of one"
    assert unsent() == [(None, "of one")]
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.write("unkept")
        await stage.pilot.press("ctrl+n")
        await stage.sees("Ask anything.")
        assert stage.chat.prompt.text == "unkept"


async def test_that_it_is_there_is_not_said_in_the_next_chat(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("localspec.tui.panels.stats_line.HINT_SECONDS", 600.0)
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.write("half a thou")
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await finds(stage, "half a thou")
        await stage.hints("was not sent")
        for phase in ("loading", "idle"):
            stage.chat.state.enter(phase, phase)  # type: ignore[arg-type]
        assert stage.chat.status.hint == BACK, "it is not about the model"
        await stage.pilot.press("ctrl+u", "ctrl+n")
        await stage.until(lambda: not stage.chat.status.hint)
        assert not stage.chat.prompt.text


async def test_an_edit_that_was_not_sent_comes_back_as_one_and_an_unchanged_message_does_not():
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.asks("hi", "Bye.")
        await stage.ready()
        await stage.pilot.press("up")
        await finds(stage, "hi")
    assert unsent() == []
    async with kept_chat(ScriptedEngine(HELLO), past=recall()) as stage:
        await stage.ready()
        await stage.write("of its own")
        await stage.pilot.press("alt+e")
        await finds(stage, "hi")
        await stage.pilot.press(" ", "h", "o")
    assert [text for _, text in unsent()] == ["of its own", "hi ho"]
    engine = ScriptedEngine(HELLO)
    async with kept_chat(engine, past=recall()) as stage:
        await finds(stage, "hi ho")
        await stage.hints(EDIT_BACK)
        await stage.ready()
        await stage.pilot.press("enter")
        await stage.until(lambda: engine.requests)
        await finds(stage, "of its own")
        assert [said.text for said in stage.chat.conversation.tree.nodes.values() if said.role == "user"] == [
            "hi",
            "hi ho",
        ]


async def test_an_edit_of_a_message_that_is_gone_is_a_new_one_and_says_so():
    (one,) = kept("one")
    with History() as history:
        head = history.find_chat(one.id).head_id
        history.keep_unsent(one.id, Unsent("my answer", edits=head))
        history.delete_message(head or 0)
    async with kept_chat(ScriptedEngine(HELLO), past=recall(one.id)) as stage:
        await finds(stage, "my answer")
        assert stage.chat.edits.edited is None
        await stage.hints(BACK)


async def test_an_edit_goes_along_to_no_other_chat():
    (one,) = kept("one")
    with History() as history:
        history.keep_unsent(one.id, Unsent("one!", edits=recall(one.id).branch[0].id))
    async with kept_chat(ScriptedEngine(HELLO), past=recall(one.id)) as stage:
        await finds(stage, "one!")
        assert stage.chat.edits.edited is not None
        await stage.pilot.press("ctrl+n")
        await stage.sees("Ask anything.")
        assert stage.chat.prompt.text == ""
    assert unsent() == [(one.id, "one!")]


async def test_without_a_history_nothing_is_written(looks_often: None):  # noqa: ARG001
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.write("a secret")
        await stage.pilot.pause(0.2)
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
        assert [one.content for one in history.unsent(None)] == ["first", "second"]


def test_what_was_written_to_a_server_follows_to_no_other_and_not_back():
    with History() as history:
        history.keep_unsent(None, Unsent("for box", server="box"))
        history.keep_unsent(None, Unsent("for here"))
        assert history.unsent(None, "other") == ()
        (here,), (box,) = history.unsent(None), history.unsent(None, "box")
        assert (here.content, box.content) == ("for here", "for box")


@pytest.mark.parametrize("sentence", [BACK, EDIT_BACK, NO_EDIT])
def test_no_sentence_says_that_it_was_written_in_this_chat(sentence: str):
    """What began a chat comes back in whichever is begun next, with any model."""
    assert "this chat" not in sentence
