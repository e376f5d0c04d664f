"""What a look-up may copy from other chats: the newest answers, bounded; what left the history is not there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from localspec.core import paths
from localspec.core.events import Origin
from localspec.core.requests import Message, Reference
from localspec.history import Attachment, History, NewChat, with_attachments
from localspec.history import references as module
from localspec.history.provenance import pack, unpack
from localspec.history.references import MOST_CHARACTERS, answer, bounded, file, kept_chats
from tests.support.chats import chat
from tests.support.scripted_engine import step


def texts(history: History, running: str | None = None) -> list[str]:
    return [one.text for one in kept_chats(history, running)]


def test_the_answers_of_the_chats_used_last_come_first_each_behind_its_question(history: History):
    chat(history, "one", "first", "two", "second", title="A tale")
    chat(history, "three", "third")
    assert texts(history) == ["third", "second", "first"]
    _, second, first = kept_chats(history)
    assert (second.kind, second.name) == ("chat", "A tale")
    assert second.before == (Message("user", "one"), Message("assistant", "first"), Message("user", "two"))
    assert first.before == (Message("user", "one"),)


def test_the_running_chat_is_left_out_and_so_is_an_answer_without_text(history: History):
    running = chat(history, "one", "first")[0].chat_id
    chat(history, "three", "")
    assert texts(history) == ["first"]
    assert texts(history, running) == []


def test_a_pinned_chat_is_no_newer_than_it_is(history: History):
    old = chat(history, "old", "older")[0].chat_id
    chat(history, "new", "newer")
    history.change(old, pinned=True)
    assert texts(history) == ["newer", "older"]


def test_what_is_deleted_is_found_no_more_and_nothing_else_was_written(history: History):
    gone = chat(history, "one", "first")[0].chat_id
    kept_chats(history)
    files = {file.name for file in paths.history_file().parent.iterdir()}
    history.delete(gone)
    assert texts(history) == []
    assert {file.name for file in paths.history_file().parent.iterdir()} == files
    assert all(name.startswith(paths.HISTORY) for name in files)


def test_a_question_has_its_attachments_as_the_model_read_them(history: History):
    attached = (Attachment("a.txt", text="the fox"),)
    asked = history.begin(NewChat("guide"), "what?", attachments=attached)
    history.append(replace(asked, id=0, parent_id=asked.id, role="assistant", content="a fox", attachments=()))
    (found,) = kept_chats(history)
    assert found.before == (Message("user", with_attachments("what?", attached)),)


def test_only_so_many_chats_are_read(history: History, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MOST_CHATS", 2)
    running = [chat(history, "q", f"answer {number}")[0].chat_id for number in range(5)][-1]
    assert texts(history) == ["answer 4", "answer 3"]
    assert texts(history, running) == ["answer 3", "answer 2"]


def test_all_texts_together_are_bounded_and_the_last_one_is_cut():
    texts = [Reference("file", str(number), "x" * 30_000) for number in range(9)]
    found = bounded(texts)
    assert [one.name for one in found] == ["0", "1", "2", "3"]
    assert sum(len(one.text) for one in found) == MOST_CHARACTERS


def test_a_long_question_is_as_good_as_its_end():
    long = [Message("user", "a" * 5000 + "b" * 1000), Message("assistant", "c"), Message("user", "d")]
    found = answer("branch", "", [Message("user", "lost"), *long][-3:], "text")
    assert [one.content for one in found.before] == ["b" * 1000, "c", "d"]
    assert len(bounded([found, file(Attachment("p", text=""))])) == 1, "a file without text says nothing"


def test_what_was_copied_from_another_chat_is_kept_without_its_name():
    """Else its title would be in this chat once it is deleted."""
    origins = [Origin("chat", "A secret", 7), Origin("file", "a.txt", 3), Origin("branch", "one", 1), None]
    steps = tuple(replace(step("a", "b"), origin=origin) for origin in origins)
    packed = pack(steps)
    assert packed is not None
    assert [one.origin for one in unpack(packed)] == [Origin("chat", "", 7), *origins[1:]]
