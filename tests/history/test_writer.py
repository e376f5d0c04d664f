"""What is said reaches the history in order, whatever is in the way, and nobody waits for it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from localspec.core import paths
from localspec.core.errors import HistoryError, NoSuchChat
from localspec.core.events import Notice
from localspec.history import (
    Answered,
    Edited,
    History,
    Left,
    Located,
    Moved,
    Opened,
    Removed,
    Unanswered,
    Update,
    Writer,
    database,
    recall,
    writer,
)
from localspec.history.turns import ANEW, ENDED_FIRST
from tests.support.chats import GUIDE, ROUNDS, Talk, answer, chat, child, contents, partial, sound


@pytest.fixture
def path() -> Path:
    return paths.history_file()


@pytest.fixture
def talk() -> Talk:
    return Talk()


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


def written(*updates: Update, chat: object = None) -> None:
    """By a writer that begins and ends with this."""
    one = Writer(chat=chat)  # type: ignore[arg-type]
    one.start(lambda _: None)
    for each in updates:
        one.post(each)
    assert one.close() is None


def tables_locked(path: Path) -> sqlite3.Connection:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    return other


def test_a_turn_is_kept_with_every_round_and_its_figures(talk: Talk):
    whole = answer()
    written(talk.asks("Once?"), talk.answers(partial("Dra")), talk.answers(whole), talk.asks("Twice?"))
    with History() as history:
        (found,) = history.chats()
        once, said, twice = history.open(found.id).branch
        assert (found.title, once.content, twice.content) == ("A tale", "Once?", "Twice?")
        assert (said.content, said.status, said.generation) == ("Drafts it.", "done", whole.generation)
        assert (said.parent_id, twice.parent_id) == (once.id, said.id)
        assert history.steps(said.id) == ROUNDS


def test_a_question_says_why_it_has_no_answer_until_it_has_one(talk: Talk):
    written(talk.asks("Once?"))
    assert recall().branch[-1].reason == ENDED_FIRST, "as a kill leaves it"
    asked = talk.asks("Twice?", below=None)
    written(asked, Unanswered(asked.id, "The engine failed."))
    assert recall().branch[-1].reason == "The engine failed."
    asked = talk.asks("And now?", below=None)
    told = [Unanswered(asked.id, reason) for reason in ("The engine failed.", "late")]
    written(asked, told[0], talk.answers(answer()), told[1])
    assert [said.reason for said in recall().branch] == ["", ""]


def test_a_failed_answer_keeps_the_sentence_of_its_error_until_it_goes_on(talk: Talk):
    failed = msgspec.structs.replace(answer(finish="error"), reason="The engine failed.")
    written(talk.asks("Once?"), talk.answers(failed))
    assert recall().branch[-1].reason == "The engine failed."
    talk = Talk()
    written(talk.asks("Once?"), talk.answers(failed), talk.answers(answer()))
    assert recall().branch[-1].reason == ""


def test_a_chat_that_is_left_is_followed_by_another_and_one_without_a_question_is_never_kept(talk: Talk):
    written(Left(), talk.asks("one"), Left(), Left(), talk.asks("two"), Left())
    with History() as history:
        assert [[said.content for said in history.open(each.id).branch] for each in history.chats()] == [
            ["two"],
            ["one"],
        ]


def test_a_chat_goes_on_where_it_was(talk: Talk):
    written(talk.asks("one"), talk.answers(answer("first")))
    opened = recall()
    talk = Talk(opened.chat.head_id)
    written(talk.asks("two"), talk.answers(answer("second")), chat=opened.chat)
    assert [said.content for said in recall(opened.chat.id[:5]).branch] == ["one", "first", "two", "second"]


def test_two_who_go_on_with_one_chat_are_two_branches_of_it(talk: Talk):
    written(talk.asks("one"), talk.answers(answer("first")))
    opened = recall()
    both = [Writer(chat=opened.chat) for _ in range(2)]
    for number, each in enumerate(both):
        each.start(lambda _: None)
        talk = Talk(opened.chat.head_id)
        each.post(talk.asks(f"from {number}"))
        each.post(talk.answers(answer(f"to {number}")))
    assert [each.close() for each in both] == [None, None]
    tree = recall().tree
    asked = tree.children(opened.chat.head_id)
    assert {tree.nodes[question].content for question in asked} == {"from 0", "from 1"}
    for question in asked:
        (said,) = tree.children(question)
        assert tree.nodes[said].content == tree.nodes[question].content.replace("from", "to")


def shape() -> list[tuple[str, str | None]]:
    """Of the chat used last: every message, and what it was said after."""
    tree = recall().tree
    return [
        (said.content, tree.nodes[said.parent_id].content if said.parent_id else None) for said in tree.nodes.values()
    ]


def branch() -> list[str]:
    return [said.content for said in recall().branch]


def test_an_answer_written_once_more_stands_beside_the_first(talk: Talk):
    asked = talk.asks("one")
    first, second = talk.answers(answer("first")), talk.answers(answer("second"), to=asked.id)
    written(asked, first, second, talk.asks("two"))
    assert shape() == [("one", None), ("first", "one"), ("second", "one"), ("two", "second")]
    assert branch() == ["one", "second", "two"]


def test_an_edited_answer_stands_beside_the_first_and_a_model_may_continue_it(talk: Talk):
    asked, first = talk.asks("one"), talk.answers(answer("first"))
    edited = Edited("my own", talk.asks("").id, asked.id)
    grown = Answered(answer("my own, and more"), edited.id, asked.id)
    written(asked, first, edited, talk.asks("two", below=edited.id), grown)
    assert shape() == [("one", None), ("first", "one"), ("my own, and more", "one"), ("two", "my own, and more")]
    assert [said.edited for said in recall().tree.nodes.values()] == [0, 0, len("my own"), 0]


def test_an_edit_of_an_answer_that_another_program_deleted_is_told_once(
    running: Writer, told: list[Notice], talk: Talk
):
    asked = talk.asks("one")
    running.post(asked)
    eventually(lambda: len(kept(paths.history_file())) == 1)
    with History() as other:
        other.delete(other.chats()[0].id)
    running.post(Edited("my own", talk.asks("").id, asked.id))
    assert running.close() is None
    assert [notice.hint for notice in told] == ["Your next message starts a new chat."]


def test_of_two_answers_that_wait_neither_replaces_the_other(path: Path, talk: Talk):
    """Only what an answer said before it grew is passed over."""
    asked = talk.asks("one")
    late = Writer()
    late.post(asked)
    late.post(talk.answers(partial("fir")))
    late.post(talk.answers(answer("first")))
    late.post(talk.answers(answer("second"), to=asked.id))
    late.start(lambda _: None)
    assert late.close() is None
    assert contents(path) == ["one", "first", "second"]


def test_another_version_of_a_question_stands_beside_it(talk: Talk):
    first = [talk.asks("one"), talk.answers(answer("first"))]
    written(*first, talk.asks("un", below=None), talk.answers(answer("premier")))
    assert shape() == [("one", None), ("first", "one"), ("un", None), ("premier", "un")]
    assert branch() == ["un", "premier"]


def test_the_branch_that_is_shown_is_the_one_that_is_opened(talk: Talk):
    one, first, two = talk.asks("one"), talk.answers(answer("first")), talk.asks("two")
    written(one, first, two, Moved(first.id))
    assert branch() == ["one", "first"]
    opened = recall()
    written(Moved(opened.tree.nodes[3].id), chat=opened.chat)
    assert branch() == ["one", "first", "two"]
    written(Moved(None), chat=opened.chat)
    assert branch() == []
    written(Talk(None).asks("instead"), chat=opened.chat)
    assert (branch(), len(recall().tree)) == (["instead"], 4)


def test_a_question_that_waits_stands_below_the_answer_that_still_grows(talk: Talk):
    one, growing = talk.asks("one"), talk.answers(partial("fir"))
    two = talk.asks("two")
    written(one, growing, two, msgspec.structs.replace(growing, answer=answer("first")))
    assert shape() == [("one", None), ("first", "one"), ("two", "first")]
    assert branch() == ["one", "first", "two"]


def test_what_is_deleted_is_gone_with_all_below_and_the_last_takes_its_chat_along(talk: Talk):
    one, first = talk.asks("one"), talk.answers(answer("first"))
    other = talk.answers(answer("other"), to=one.id)
    written(one, first, other, talk.asks("two"), Removed(other.id), Moved(first.id))
    assert shape() == [("one", None), ("first", "one")]
    opened = recall()
    written(Removed(opened.branch[0].id), talk.asks("new", below=None), chat=opened.chat)
    assert shape() == [("new", None)]
    with History() as history:
        assert len(history.chats()) == 1


def test_steps_in_a_chat_that_another_program_deleted_are_no_trouble(running: Writer, told: list[Notice], talk: Talk):
    one, first = talk.asks("one"), talk.answers(answer("first"))
    running.post(one)
    running.post(first)
    eventually(lambda: len(kept(paths.history_file())) == 2)
    with History() as other:
        other.delete(other.chats()[0].id)
    for said in (Moved(one.id), Removed(first.id), Moved(talk.last), talk.asks("two", below=one.id)):
        running.post(said)
    assert running.close() is None
    assert (branch(), told) == (["two"], [ANEW])


def test_an_answer_to_a_question_that_another_program_deleted_is_told_once(
    running: Writer, told: list[Notice], talk: Talk
):
    one, first = talk.asks("one"), talk.answers(answer("first"))
    running.post(one)
    running.post(first)
    eventually(lambda: len(kept(paths.history_file())) == 2)
    with History() as other:
        other.delete(other.chats()[0].id)
    again = talk.answers(partial("half"), to=one.id)
    running.post(again)
    eventually(lambda: told)
    running.post(msgspec.structs.replace(again, answer=answer("whole")))
    assert running.close() is None
    assert [notice.hint for notice in told] == ["Your next message starts a new chat."]


def test_rounds_are_read_from_another_thread_until_the_writer_is_closed(running: Writer, talk: Talk):
    running.post(talk.asks("one"))
    running.post(talk.answers(answer("first")))
    eventually(lambda: len(kept(paths.history_file())) == 2)
    assert running.steps(2) == ROUNDS
    assert running.steps(1) == running.steps(99) == ()
    assert running.close() is None
    assert running.steps(2) == ()


def test_rounds_of_a_history_that_cannot_be_opened_are_none(path: Path, told: list[Notice]):
    path.mkdir()
    one = Writer()
    one.start(told.append)
    assert one.steps(1) == ()
    one.close()


def test_whoever_posts_never_waits_and_trouble_is_told_once(
    path: Path,
    running: Writer,
    told: list[Notice],
    monkeypatch: pytest.MonkeyPatch,
    talk: Talk,
):
    """Another program locks the history; when it lets go, everything is there, in order."""
    monkeypatch.setattr(database, "LOCKED_SECONDS", 0.01)
    monkeypatch.setattr(writer, "CLOSE_SECONDS", 100.0)  # a busy machine writes a thousand messages in more than ten
    History().close()
    running.post(talk.asks("before"))
    eventually(lambda: kept(path) == ["before"])
    running._history._database._db.execute("PRAGMA busy_timeout = 1")  # type: ignore[union-attr]
    other = tables_locked(path)
    began = time.monotonic()
    running.post(talk.answers(answer("an answer")))
    for number in range(1000):
        running.post(talk.asks(str(number)))
    assert time.monotonic() - began < 5  # each would have waited for a hundredth, and all for ten seconds
    eventually(lambda: told)
    time.sleep(0.1)
    (notice,) = told
    assert notice.message == f"Another program keeps the history {path} locked."
    other.close()
    eventually(lambda: told[1:] == [writer.AGAIN])
    assert running.close() is None
    assert contents(path) == ["before", "an answer", *map(str, range(1000))]


def test_a_full_disk_is_told_once_and_what_was_said_meanwhile_is_kept_when_there_is_space(
    path: Path,
    running: Writer,
    told: list[Notice],
    talk: Talk,
):
    long = "long " * 50_000
    running.post(talk.asks("kept"))
    eventually(lambda: kept(path) == ["kept"])
    db = running._history._database  # type: ignore[union-attr]
    (pages,) = db.read("PRAGMA page_count")[0]
    db.read(f"PRAGMA max_page_count = {pages}")
    for size in range(1, 4):
        running.post(talk.answers(partial(long * size)))
        time.sleep(0.05)
    running.post(talk.answers(answer(long * 4)))
    running.post(talk.asks("and then"))
    eventually(lambda: told)
    assert "is full" in told[0].message
    assert contents(path)[:1] == ["kept"]
    db.read("PRAGMA max_page_count = 1073741823")
    assert running.close() is None
    assert told[1:] == [writer.AGAIN]
    assert contents(path) == ["kept", long * 4, "and then"]
    assert sound(path)


def test_trouble_that_stays_is_the_reason_when_the_writer_closes(
    path: Path, running: Writer, told: list[Notice], talk: Talk
):
    running.post(talk.asks("kept"))
    eventually(lambda: kept(path) == ["kept"])
    db = running._history._database  # type: ignore[union-attr]
    db.read("PRAGMA query_only = ON")
    running.post(talk.answers(answer("lost")))
    eventually(lambda: told)
    assert running.close() == told[0]
    assert "read-only" in told[0].message
    assert len(told) == 1


def test_a_history_that_cannot_be_opened_is_told_before_anything_is_said(path: Path, told: list[Notice], talk: Talk):
    path.mkdir()
    one = Writer()
    one.start(told.append)
    eventually(lambda: told)
    assert "cannot be opened" in told[0].message
    one.post(talk.asks("lost"))
    time.sleep(0.05)
    path.rmdir()
    one.post(talk.answers(answer("and found")))
    assert one.close() is None
    assert told[1:] == [writer.AGAIN]
    assert contents(path) == ["lost", "and found"]


def test_a_damaged_history_is_told_and_a_new_one_is_written(path: Path, told: list[Notice], talk: Talk):
    path.write_bytes(b"\x00\xff rubbish" * 1000)
    one = Writer()
    one.start(told.append)
    one.post(talk.asks("new"))
    assert one.close() is None
    assert [notice.code for notice in told] == ["history_damaged"]
    assert contents(path) == ["new"]
    path.write_bytes(b"\x00\xff rubbish" * 1000)
    with pytest.raises(HistoryError, match="was damaged and is now"):
        recall()


def test_a_writer_that_fails_in_an_unknown_way_says_so_and_lives(
    path: Path,
    running: Writer,
    told: list[Notice],
    monkeypatch: pytest.MonkeyPatch,
    talk: Talk,
):
    def breaks(*_: object, **__: object) -> None:
        raise RecursionError("odd")

    monkeypatch.setattr(History, "begin", breaks)
    running.post(talk.asks("hi"))
    eventually(lambda: told)
    assert "RecursionError" in told[0].message
    monkeypatch.undo()
    assert running.close() is None
    assert contents(path) == ["hi"]


def test_a_chat_deleted_by_another_program_is_told_and_the_next_question_begins_a_new_one(
    path: Path,
    running: Writer,
    told: list[Notice],
    talk: Talk,
):
    running.post(talk.asks("one"))
    eventually(lambda: kept(path) == ["one"])
    with History() as other:
        other.delete(other.chats()[0].id)
        running.post(talk.answers(partial("half")))
        running.post(talk.answers(answer("lost")))
        eventually(lambda: told)
        running.post(talk.asks("two"))
        running.post(talk.answers(answer("kept")))
        assert running.close() is None
        assert [said.content for said in other.open(other.chats()[0].id).branch] == ["two", "kept"]
    (notice,) = told
    assert notice.hint == "Your next message starts a new chat."


def test_a_chat_deleted_between_two_turns_begins_again_with_the_next(
    path: Path, running: Writer, told: list[Notice], talk: Talk
):
    running.post(talk.asks("one"))
    running.post(talk.answers(answer("first")))
    eventually(lambda: kept(path) == ["one", "first"])
    with History() as other:
        other.delete(other.chats()[0].id)
    running.post(talk.asks("two"))
    running.post(talk.answers(answer("second")))
    assert running.close() is None
    assert contents(path) == ["two", "second"]
    assert told == [ANEW]


def test_a_writer_that_was_never_started_has_nothing_to_say():
    assert Writer().close() is None
    assert not paths.history_file().exists()


def test_what_waits_when_the_disk_hangs_is_said_to_be_lost(
    told: list[Notice], monkeypatch: pytest.MonkeyPatch, talk: Talk
):
    monkeypatch.setattr(writer, "CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(History, "begin", lambda *_, **__: time.sleep(1))
    hung = Writer()
    hung.start(told.append)
    hung.post(talk.asks("hi"))
    assert hung.close() == writer.LATE


# --- recall


def test_the_chat_to_go_on_with_is_the_last_or_the_one_that_is_named():
    with pytest.raises(NoSuchChat) as nothing:
        recall()
    assert str(nothing.value) == "There is no chat to continue. Start one: localspec chat"
    with History() as history:
        first, second = chat(history, "one")[0], chat(history, "two")[0]
    assert recall().chat.id == second.chat_id
    assert recall(first.chat_id[:6]).chat.id == first.chat_id
    with pytest.raises(NoSuchChat, match="There is no chat 'nope'"):
        recall("nope")


# --- the program dies

SAYS = """
import time
from localspec.history import Writer
from tests.support.chats import Talk, partial
writer, talk = Writer(), Talk()
writer.start(lambda notice: print(notice, flush=True))
for number in range(100_000):
    writer.post(talk.asks(f"question {number}"))
    writer.post(talk.answers(partial(f"answer {number}")))
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


def test_a_question_knows_what_its_chat_is_called(talk: Talk):
    written(talk.asks("hi", chat=msgspec.structs.replace(GUIDE, title="[/nope]", system="Be brief.")))
    found = recall().chat
    assert (found.title, found.system, found.model_key) == ("[/nope]", "Be brief.", "guide")


def test_a_chat_that_is_opened_goes_on_below_its_head_and_its_place_is_told_in_order():
    with History() as history:
        one, two = chat(history, "one", "first"), chat(history, "two")
    told: list[str | None] = []
    where = Located(told.append)
    there = recall(one[0].chat_id).chat
    new, old = Talk(), Talk(there.head_id)
    again = (Opened(there), old.asks("more"), old.answers(answer()))
    written(where, new.asks("new"), where, *again, where, Left(), where)
    assert (told[0], *told[2:]) == (None, one[0].chat_id, None)
    assert told[1] not in (None, one[0].chat_id, two[0].chat_id)
    assert [said.content for said in recall(one[0].chat_id).branch] == ["one", "first", "more", "Drafts it."]
