"""What is said reaches the history in order, whatever is in the way, and nobody waits for it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from localspec import paths
from localspec.errors import HistoryError, NoSuchChat
from localspec.events import Notice
from localspec.history import (
    Answered,
    Asked,
    History,
    Left,
    Located,
    NewChat,
    Opened,
    Said,
    Writer,
    database,
    recall,
    writer,
)
from tests.history_made_here import ROUNDS, answer, chat, child, contents, partial, sound

GUIDE = NewChat("guide", title="A tale")


@pytest.fixture
def path() -> Path:
    return paths.history_file()


@pytest.fixture
def told() -> list[Notice]:
    return []


@pytest.fixture
def running(told: list[Notice]) -> Iterator[Writer]:
    made = Writer()
    made.start(told.append)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.01)


def kept(path: Path) -> list[str]:
    """The contents, once there is a file with its tables."""
    try:
        return contents(path) if path.exists() else []
    except sqlite3.OperationalError:
        return []


def eventually(predicate: Callable[[], object]) -> None:
    for _ in range(1000):
        if predicate():
            return
        time.sleep(0.01)
    raise AssertionError("never came true")


def written(*said: Said, chat: object = None) -> None:
    """By a writer that begins and ends with this."""
    one = Writer(chat=chat)  # type: ignore[arg-type]
    one.start(lambda _: None)
    for each in said:
        one.post(each)
    assert one.close() is None


def tables_locked(path: Path) -> sqlite3.Connection:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    return other


def test_a_turn_is_kept_with_every_round_and_its_figures():
    whole = answer()
    written(Asked(GUIDE, "Once?"), Answered(partial("Dra")), Answered(whole), Asked(GUIDE, "Twice?"))
    with History() as history:
        (found,) = history.chats()
        once, said, twice = history.open(found.id).branch
        assert (found.title, once.content, twice.content) == ("A tale", "Once?", "Twice?")
        assert (said.content, said.status, said.generation) == ("Drafts it.", "done", whole.generation)
        assert (said.parent_id, twice.parent_id) == (once.id, said.id)
        assert history.steps(said.id) == ROUNDS


def test_a_chat_that_is_left_is_followed_by_another_and_one_without_a_question_is_never_kept():
    written(Left(), Asked(GUIDE, "one"), Left(), Left(), Asked(GUIDE, "two"), Left())
    with History() as history:
        assert [[said.content for said in history.open(each.id).branch] for each in history.chats()] == [
            ["two"],
            ["one"],
        ]


def test_a_chat_goes_on_where_it_was():
    written(Asked(GUIDE, "one"), Answered(answer("first")))
    opened = recall()
    written(Asked(GUIDE, "two"), Answered(answer("second")), chat=opened.chat)
    assert [said.content for said in recall(opened.chat.id[:5]).branch] == ["one", "first", "two", "second"]


def test_two_who_go_on_with_one_chat_are_two_branches_of_it():
    written(Asked(GUIDE, "one"), Answered(answer("first")))
    opened = recall()
    both = [Writer(chat=opened.chat) for _ in range(2)]
    for number, each in enumerate(both):
        each.start(lambda _: None)
        each.post(Asked(GUIDE, f"from {number}"))
        each.post(Answered(answer(f"to {number}")))
    assert [each.close() for each in both] == [None, None]
    tree = recall().tree
    asked = tree.children(opened.chat.head_id)
    assert {tree.nodes[question].content for question in asked} == {"from 0", "from 1"}
    for question in asked:
        (said,) = tree.children(question)
        assert tree.nodes[said].content == tree.nodes[question].content.replace("from", "to")


def test_whoever_posts_never_waits_and_trouble_is_told_once(
    path: Path, running: Writer, told: list[Notice], monkeypatch: pytest.MonkeyPatch
):
    """Another program locks the history; when it lets go, everything is there, in order."""
    monkeypatch.setattr(database, "LOCKED_SECONDS", 0.01)
    History().close()
    running.post(Asked(GUIDE, "before"))
    eventually(lambda: kept(path) == ["before"])
    running._history._database._db.execute("PRAGMA busy_timeout = 1")  # type: ignore[union-attr]
    other = tables_locked(path)
    began = time.monotonic()
    running.post(Answered(answer("an answer")))
    for number in range(1000):
        running.post(Asked(GUIDE, str(number)))
    assert time.monotonic() - began < 1
    eventually(lambda: told)
    time.sleep(0.1)
    (notice,) = told
    assert notice.message == f"Another program keeps the history {path} locked."
    other.close()
    eventually(lambda: told[1:] == [writer.AGAIN])
    assert running.close() is None
    assert contents(path) == ["before", "an answer", *map(str, range(1000))]


def test_a_full_disk_is_told_once_and_what_was_said_meanwhile_is_kept_when_there_is_space(
    path: Path, running: Writer, told: list[Notice]
):
    long = "long " * 50_000
    running.post(Asked(GUIDE, "kept"))
    eventually(lambda: kept(path) == ["kept"])
    db = running._history._database  # type: ignore[union-attr]
    (pages,) = db.read("PRAGMA page_count")[0]
    db.read(f"PRAGMA max_page_count = {pages}")
    for size in range(1, 4):
        running.post(Answered(partial(long * size)))
        time.sleep(0.05)
    running.post(Answered(answer(long * 4)))
    running.post(Asked(GUIDE, "and then"))
    eventually(lambda: told)
    assert "is full" in told[0].message
    assert contents(path)[:1] == ["kept"]
    db.read("PRAGMA max_page_count = 1073741823")
    assert running.close() is None
    assert told[1:] == [writer.AGAIN]
    assert contents(path) == ["kept", long * 4, "and then"]
    assert sound(path)


def test_trouble_that_stays_is_the_reason_when_the_writer_closes(path: Path, running: Writer, told: list[Notice]):
    running.post(Asked(GUIDE, "kept"))
    eventually(lambda: kept(path) == ["kept"])
    db = running._history._database  # type: ignore[union-attr]
    db.read("PRAGMA query_only = ON")
    running.post(Answered(answer("lost")))
    eventually(lambda: told)
    assert running.close() == told[0]
    assert "read-only" in told[0].message
    assert len(told) == 1


def test_a_history_that_cannot_be_opened_is_told_before_anything_is_said(path: Path, told: list[Notice]):
    path.mkdir()
    one = Writer()
    one.start(told.append)
    eventually(lambda: told)
    assert "cannot be opened" in told[0].message
    one.post(Asked(GUIDE, "lost"))
    time.sleep(0.05)
    path.rmdir()
    one.post(Answered(answer("and found")))
    assert one.close() is None
    assert told[1:] == [writer.AGAIN]
    assert contents(path) == ["lost", "and found"]


def test_a_damaged_history_is_told_and_a_new_one_is_written(path: Path, told: list[Notice]):
    path.write_bytes(b"\x00\xff rubbish" * 1000)
    one = Writer()
    one.start(told.append)
    one.post(Asked(GUIDE, "new"))
    assert one.close() is None
    assert [notice.code for notice in told] == ["history_damaged"]
    assert contents(path) == ["new"]
    path.write_bytes(b"\x00\xff rubbish" * 1000)
    with pytest.raises(HistoryError, match="was damaged and is now"):
        recall()


def test_a_writer_that_fails_in_an_unknown_way_says_so_and_lives(
    path: Path, running: Writer, told: list[Notice], monkeypatch: pytest.MonkeyPatch
):
    def breaks(*_: object) -> None:
        raise RecursionError("odd")

    monkeypatch.setattr(History, "begin", breaks)
    running.post(Asked(GUIDE, "hi"))
    eventually(lambda: told)
    assert "RecursionError" in told[0].message
    monkeypatch.undo()
    assert running.close() is None
    assert contents(path) == ["hi"]


def test_a_chat_deleted_by_another_program_is_told_and_the_next_question_begins_a_new_one(
    path: Path, running: Writer, told: list[Notice]
):
    running.post(Asked(GUIDE, "one"))
    eventually(lambda: kept(path) == ["one"])
    with History() as other:
        other.delete(other.chats()[0].id)
        running.post(Answered(partial("half")))
        running.post(Answered(answer("lost")))
        eventually(lambda: told)
        running.post(Asked(GUIDE, "two"))
        running.post(Answered(answer("kept")))
        assert running.close() is None
        assert [said.content for said in other.open(other.chats()[0].id).branch] == ["two", "kept"]
    (notice,) = told
    assert notice.hint == "Your next message begins a new chat."


def test_a_chat_deleted_between_two_turns_begins_again_with_the_next(path: Path, running: Writer, told: list[Notice]):
    running.post(Asked(GUIDE, "one"))
    running.post(Answered(answer("first")))
    eventually(lambda: kept(path) == ["one", "first"])
    with History() as other:
        other.delete(other.chats()[0].id)
    running.post(Asked(GUIDE, "two"))
    running.post(Answered(answer("second")))
    assert running.close() is None
    assert contents(path) == ["two", "second"]
    assert told == []


def test_a_writer_that_was_never_started_has_nothing_to_say():
    assert Writer().close() is None
    assert not paths.history_file().exists()


def test_what_waits_when_the_disk_hangs_is_said_to_be_lost(told: list[Notice], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writer, "CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(History, "begin", lambda *_: time.sleep(1))
    hung = Writer()
    hung.start(told.append)
    hung.post(Asked(GUIDE, "hi"))
    assert hung.close() == writer.LATE


# --- recall


def test_the_chat_to_go_on_with_is_the_last_or_the_one_that_is_named():
    with pytest.raises(NoSuchChat) as nothing:
        recall()
    assert str(nothing.value) == "There is no chat to go on with. Begin one: localspec chat"
    with History() as history:
        first, second = chat(history, "one")[0], chat(history, "two")[0]
    assert recall().chat.id == second.chat_id
    assert recall(first.chat_id[:6]).chat.id == first.chat_id
    with pytest.raises(NoSuchChat, match="There is no chat 'nope'"):
        recall("nope")


# --- the program dies

SAYS = """
import time
from localspec.history import Answered, Asked, NewChat, Writer
from tests.history_made_here import partial
writer = Writer()
writer.start(lambda notice: print(notice, flush=True))
for number in range(100_000):
    writer.post(Asked(NewChat("guide"), f"question {number}"))
    writer.post(Answered(partial(f"answer {number}")))
    time.sleep(0.001)  # or all is said, and the program over, before the thread has made its tables
"""


@pytest.mark.heavy
@pytest.mark.skipif(os.name == "nt", reason="SIGKILL")
@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_what_was_written_when_the_program_was_killed_is_there_in_order(path: Path, kills: int):
    for _ in range(kills):
        with child(SAYS) as saying:
            eventually(lambda: len(kept(path)) > 3)
            seen = len(kept(path))
            saying.kill()
            assert saying.stdout is not None
            assert saying.stdout.read() == ""
        found = contents(path)
        assert len(found) >= seen
        expected = [f"{kind} {number}" for number in range(len(found)) for kind in ("question", "answer")]
        if not found[-1]:  # an answer's place; its text is the next commit
            found.pop()
        assert found == expected[: len(found)]
        assert sound(path)
        for file in path.parent.iterdir():
            file.unlink()


@pytest.mark.heavy
def test_two_programs_say_things_at_once():
    """G4 through the writer."""
    program = SAYS.replace("100_000", "40") + "\nassert writer.close() is None"
    both = [child(program) for _ in range(2)]
    assert [(each.communicate(), each.returncode) for each in both] == [(("", ""), 0)] * 2
    with History() as history:
        chats = [[said.content for said in history.open(each.id).branch] for each in history.chats()]
    assert chats == [[f"{kind} {number}" for number in range(40) for kind in ("question", "answer")]] * 2


def test_a_question_knows_what_its_chat_is_called():
    written(Asked(msgspec.structs.replace(GUIDE, title="[/nope]", system="Be brief."), "hi"))
    found = recall().chat
    assert (found.title, found.system, found.model_key) == ("[/nope]", "Be brief.", "guide")


def test_a_chat_that_is_opened_goes_on_below_its_head_and_its_place_is_told_in_order():
    with History() as history:
        one, two = chat(history, "one", "first"), chat(history, "two")
    told: list[str | None] = []
    where = Located(told.append)
    again = Opened(recall(one[0].chat_id).chat)
    written(where, Asked(GUIDE, "new"), where, again, Asked(GUIDE, "more"), Answered(answer()), where, Left(), where)
    assert (told[0], *told[2:]) == (None, one[0].chat_id, None)
    assert told[1] not in (None, one[0].chat_id, two[0].chat_id)
    assert [said.content for said in recall(one[0].chat_id).branch] == ["one", "first", "more", "Drafts it."]
