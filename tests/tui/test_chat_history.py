"""What is said in the chat is found again: after leaving, stopping, failing and kill -9; and trouble is one notice."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import time
from pathlib import Path

import msgspec
import pytest

from localspec.cli.main import main
from localspec.core import paths
from localspec.core.errors import UPDATE
from localspec.core.events import Failure, Notice, Ready, Stats
from localspec.core.requests import LoadRequest, Message
from localspec.core.version import __version__
from localspec.history import Generation, History, NewChat, OpenChat, StoredMessage, Writer, database, recall, writer
from localspec.history import SavedAnswer as StoredAnswer
from localspec.tui import app as app_module
from localspec.tui.app import ChatApp
from localspec.tui.chat import recorder
from localspec.tui.chat.conversation import Conversation
from localspec.tui.panels.sidebar import Sidebar
from localspec.tui.screens import chat as chat_module
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.markers import More, Note
from localspec.tui.transcript.question import Question
from tests.core.test_sanitize import FORBIDDEN
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat
from tests.support.chats import chat, child, contents, partial, reply, sound
from tests.support.scripted_engine import READY, ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy

BYE = "Hello there, world. Bye."
SHORT = answer(step("Bye", "."))


@pytest.fixture(autouse=True)
def quick_to_save(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_module, "SAVE_SECONDS", 0.02)
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.02)


@pytest.fixture
def path() -> Path:
    return paths.history_file()


def saved() -> list[StoredMessage]:
    """The messages of the chat used last."""
    with History() as history:
        found = history.latest()
        return history.open(found.id).branch if found else []


def words() -> list[tuple[str, str]]:
    return [(said.content, said.status) for said in saved()]


def chats() -> list[list[str]]:
    """Every chat's messages, the one used last first."""
    with History() as history:
        return [[said.content for said in history.open(each.id).branch] for each in history.chats()]


async def ask(stage: Stage, text: str) -> None:
    """And wait for the end of the answer."""
    answers = len(stage.chat.query(Answer))
    await stage.send(text)
    await stage.until(
        lambda: len(stage.chat.query(Answer)) == answers + 1 and stage.chat.state.phase in {"idle", "gone"}
    )


# --- turns


async def test_every_turn_is_kept_with_its_rounds_and_figures():
    async with kept_chat(ScriptedEngine(HELLO, SHORT), system="Be brief.") as stage:
        await ask(stage, "What is\na [b]draft[/b]?")
        await ask(stage, "And then?")
    opened = recall()
    assert (opened.chat.title, opened.chat.system, opened.chat.model_key) == ("What is", "Be brief.", "guide")
    assert words() == [("What is\na [b]draft[/b]?", "done"), (BYE, "done"), ("And then?", "done"), ("Bye.", "done")]
    made = opened.branch[1].generation
    assert made is not None
    assert (made.target, made.quant, made.device, made.draft) == ("guide", "int8", "cpu", "guide-draft")
    assert made.versions == {"localspec": __version__}
    assert made.stats == HELLO[-1].stats  # type: ignore[union-attr]
    with History() as history:
        assert history.steps(opened.branch[1].id) == tuple(HELLO[1:-1])
        assert history.steps(opened.branch[3].id)[0].rejected


async def test_a_question_is_kept_when_it_is_asked_and_an_answer_while_it_grows():
    engine = ScriptedEngine(HELLO, paused=True)
    async with kept_chat(engine) as stage:
        engine.permit(1)
        await stage.ready()
        await stage.send("hi")
        await stage.until(lambda: words() == [("hi", "done")])
        engine.permit(2)
        await stage.until(lambda: words() == [("hi", "done"), ("Hello there", "partial")])
        engine.permit(1)
        await stage.until(lambda: words()[1] == ("Hello there, world.", "partial"))
        written = saved()[1]
        with History() as history:
            assert history.steps(written.id) == tuple(HELLO[1:3])
        assert written.generation is not None
        assert written.generation.stats.predicted_n == 4
        engine.permit()
        await stage.until(lambda: words()[1] == (BYE, "done"))
        assert saved()[1].id == written.id


def test_little_of_an_answer_can_be_lost():
    """G7, as it ships."""
    assert recorder.SAVE_SECONDS <= 2
    assert recorder.SAVE_TOKENS <= 200


@pytest.mark.slow
async def test_an_answer_is_kept_every_200_tokens_though_no_clock_says_so(monkeypatch: pytest.MonkeyPatch):
    """G7: of a fast model two seconds would be thousands of tokens."""
    monkeypatch.setattr(chat_module, "SAVE_SECONDS", 3600.0)
    engine = ScriptedEngine(answer(*(step(*(f"{n * 10 + i} " for i in range(10))) for n in range(50))), paused=True)
    async with kept_chat(engine) as stage:
        engine.permit(2 + 19)
        await stage.send("go")
        await stage.sees("189")
        assert words() == [("go", "done")], "190 tokens wait for the clock"
        engine.permit(12)
        await stage.until(lambda: len(words()) == 2 and words()[1][0])
        assert words()[1] == ("".join(f"{n} " for n in range(200)), "partial")
        engine.permit(9)
        await stage.until(lambda: words()[1][0].endswith("399 "))
        assert words()[1][1] == "partial"
        engine.permit()
        await stage.until(lambda: words()[1][1] == "done")


async def test_a_stopped_answer_is_kept_as_far_as_it_came_and_says_so():
    engine = ScriptedEngine(HELLO, paused=True)
    async with kept_chat(engine) as stage:
        await stage.begins("hi")
        await stage.pilot.press("escape")
        await stage.sees("stopped · ")
    assert words() == [("hi", "done"), ("Hello there", "stopped")]


async def test_a_failed_answer_is_kept_with_figures_of_its_own():
    broken = [*HELLO[:2], Failure("engine", "The model produced invalid numbers.")]
    async with kept_chat(ScriptedEngine(HELLO, broken, HELLO)) as stage:
        for question in ("one", "two", "three"):
            await ask(stage, question)
    assert words()[2:4] == [("two", "done"), ("Hello there", "error")]
    first, failed, last = (said.generation.stats for said in saved()[1::2] if said.generation)
    assert (failed.predicted_n, failed.finish_reason) == (2, "error")
    assert (first.predicted_n, last.predicted_n) == (6, 6)


async def test_an_answer_whose_engine_died_is_kept():
    first, second = ScriptedEngine(HELLO, paused=True), ScriptedEngine(SHORT)
    async with kept_chat(first, second) as stage:
        await stage.begins("hi")
        first.die()
        await stage.until(lambda: stage.chat.state.phase == "gone")
        await stage.pilot.press("ctrl+r")
        await stage.ready()
        await ask(stage, "more")
    assert words() == [("hi", "done"), ("Hello there", "error"), ("more", "done"), ("Bye.", "done")]


async def test_which_weights_answered_is_kept():
    model = msgspec.structs.replace(READY.model, revision="files 0123456789ab")
    async with kept_chat(ScriptedEngine(HELLO, opening=[Ready(model, READY.spec, READY.memory)])) as stage:
        await ask(stage, "hi")
    assert [said.generation.target_sha for said in saved() if said.generation] == [model.revision]


async def test_who_leaves_in_mid_answer_finds_what_was_written():
    engine = ScriptedEngine(HELLO, paused=True)
    async with kept_chat(engine) as stage:
        await stage.begins("hi")
        await stage.pilot.press("ctrl+q")
    assert words() == [("hi", "done"), ("Hello there", "stopped")]


async def test_a_drafter_that_failed_is_not_named_for_later_answers():
    failed = [Notice("warning", "drafter_failed", "The drafter failed (nan)."), *HELLO]
    async with kept_chat(ScriptedEngine(failed, HELLO)) as stage:
        await ask(stage, "one")
        await ask(stage, "two")
    assert [said.generation.draft for said in saved() if said.generation] == ["guide-draft", None]


# --- chats


async def test_a_new_chat_is_another_in_the_history_and_an_empty_one_is_none():
    engine = ScriptedEngine(HELLO, SHORT, paused=True)
    async with kept_chat(engine) as stage:
        await stage.pilot.press("ctrl+n")
        await stage.begins("old")
        await stage.pilot.press("ctrl+n", "ctrl+n")
        await stage.sees("Ask anything.")
        engine.permit()
        await stage.ready()
        await ask(stage, "new")
        await stage.pilot.press("ctrl+n")
    assert chats() == [["new", "Bye."], ["old", "Hello there"]]
    with History() as history:
        assert [said.status for said in history.open(history.chats()[1].id).branch] == ["done", "stopped"]


async def test_a_new_chat_begins_idle_whatever_was_stopped_before_it():
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine) as stage:
        await stage.begins("old")
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.chat.status.state == "stopped")
        await stage.pilot.press("ctrl+n")
        await stage.sees("Ask anything.")
        await stage.until(lambda: stage.chat.status.state == "idle")


async def test_without_paper_nothing_is_written(tmp_path: Path):
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await ask(stage, "hi")
    assert not (tmp_path / "data").exists()


async def test_a_chat_goes_on_with_what_was_said():
    async with kept_chat(ScriptedEngine(HELLO, [Failure("engine", "No.")]), system="Be brief.") as stage:
        await ask(stage, "one")
        await stage.asks("unanswered", "No.")
        await stage.ready()
    second = ScriptedEngine(SHORT, SHORT)
    async with kept_chat(second, past=recall()) as stage:
        await stage.sees("Hello there, world.", " 6 tokens ·", "unanswered", "This message had no answer")
        await notes_end_with(stage, "This message had no answer when the chat was opened: No. Ctrl+R asks for one.")
        assert "one · begun 20" in str(stage.chat.query(Note).first().content)
        await ask(stage, "two")
        said = [Message("user", "one"), Message("assistant", BYE), Message("user", "two")]
        assert list(second.requests[0].messages or ()) == [Message("system", "Be brief."), *said]
        await stage.pilot.press("ctrl+n")
        await stage.sees("Ask anything.")
        await ask(stage, "new")
        assert second.requests[1].messages == (Message("user", "new"),)
    assert chats() == [["new", "Bye."], ["one", BYE, "unanswered", "two", "Bye."]]


async def test_why_an_answer_failed_or_never_began_is_said_when_the_chat_is_opened():
    engine = ScriptedEngine([*HELLO[:2], Failure("engine", "It broke.", "Try again.")], HELLO, paused=True)
    async with kept_chat(engine) as stage:
        engine.permit(4)
        await stage.asks("one", "Hello there", "It broke. Try again.")
        await stage.send("two")
        await stage.until(lambda: len(engine.requests) == 2)
        await stage.pilot.press("escape")
        await stage.ready()
    async with kept_chat(ScriptedEngine(SHORT), past=recall()) as stage:
        await stage.sees("Hello there", "It broke.", "two")
        await notes_end_with(stage, "opened: you stopped it before it began. Ctrl+R asks for one.")
        await stage.pilot.press("ctrl+r")
        await stage.sees("Bye.")
        await stage.ready()
    assert [said.reason for said in saved()] == ["", "It broke.", "", ""]


@pytest.mark.parametrize("way", ["new", "list"])
@pytest.mark.parametrize("began", [False, True])
async def test_leaving_a_chat_stops_its_answer_and_both_chats_say_so(way: str, began: bool):
    with History() as history:
        chat(history, "elsewhere")
    engine = ScriptedEngine(HELLO, paused=True)
    async with kept_chat(engine, size=(120, 30)) as stage:
        engine.permit(3 if began else 1)
        await stage.send("one")
        await stage.until(lambda: "Hello there" in stage.seen if began else engine.requests)
        if way == "new":
            await stage.pilot.press("ctrl+n")
        else:
            await stage.pilot.press("ctrl+b")
            await stage.sees("elsewhere")
            await stage.pilot.press("down", "enter")
        await stage.hints("The answer that was being written was stopped when you left it; /continue there goes on.")
        engine.permit(9)
        await stage.ready()
        await stage.hints("was stopped when you left it")
    with History(reading=True) as history:
        left = next(one for one in history.chats() if one.title == "one")
    async with kept_chat(ScriptedEngine(SHORT), past=recall(left.id)) as stage:
        if began:
            await stage.sees("Hello there", "stopped")
        else:
            await notes_end_with(stage, "opened: you opened another chat before it began. Ctrl+R asks for one.")


async def test_a_question_that_the_program_did_not_live_to_answer_says_so():
    engine = ScriptedEngine(HELLO, paused=True)
    async with kept_chat(engine) as stage:
        engine.permit(1)
        await stage.send("one")
        await stage.until(lambda: engine.requests)
    async with kept_chat(ScriptedEngine(SHORT), past=recall()) as stage:
        await notes_end_with(
            stage,
            "opened: localspec ended before it was answered, or still answers it in another terminal. "
            "Ctrl+R asks for one.",
        )


async def test_of_a_long_chat_the_end_is_shown_and_all_of_it_is_told_the_model():
    with History() as history:
        chat(history, *(f"said {number}" for number in range(50)))
    engine = ScriptedEngine(SHORT)
    async with kept_chat(engine, past=recall()) as stage:
        await stage.sees("said 49")
        kinds = [type(widget) for widget in stage.chat.transcript.children]
        assert kinds == [Note, More, *[Question, Answer] * 10]
        assert "30 earlier messages" in str(stage.chat.query(More).first().content)
        await stage.ready()
        await ask(stage, "more")
    assert len(engine.requests[0].messages or ()) == 51


async def test_an_answer_cut_off_by_a_kill_says_so_and_counts():
    with History() as history:
        _, written = chat(history, "Once?", "")
        history.save(written.id, partial("Upon a"))
    engine = ScriptedEngine(SHORT)
    async with kept_chat(engine, past=recall()) as stage:
        await stage.sees("Upon a", "interrupted: the program ended")
        await ask(stage, "go on")
    assert [said.content for said in engine.requests[0].messages or ()] == ["Once?", "Upon a", "go on"]


async def test_a_hostile_chat_is_shown_and_harmless():
    attack = "[/nope]\x1b]52;c;aGk=\x07\x9b2J\u202egnp.exe\x00 [@click=app.quit]x[/]"
    with History() as history:
        question = history.begin(NewChat(attack, title=attack, system=attack), attack)
        written = history.append(StoredMessage.unsaved(question.chat_id, "assistant", attack, question.id))
        history.append(StoredMessage.unsaved(question.chat_id, "user", attack, written.id))
    async with kept_chat(ScriptedEngine(SHORT), past=recall()) as stage:
        await stage.sees("[/nope]␛]52;c;aGk=2Jgnp.exe", "begun 20")
        await ask(stage, attack)
        assert FORBIDDEN.isdisjoint(stage.seen.replace("\n", ""))
    assert recall().chat.title == attack


# --- trouble


async def tells_once_and_goes_on(stage: Stage, *words: str) -> None:
    await ask(stage, "one")
    await stage.until(lambda: notes(stage))
    await ask(stage, "two")
    (note,) = notes(stage)
    assert all(word in note for word in words), note
    assert [said.content for said in stage.engine.requests[1].messages or ()] == ["one", BYE, "two"]


def notes(stage: Stage) -> list[str]:
    return [str(note.content) for note in stage.chat.query(Note)]


async def notes_end_with(stage: Stage, words: str) -> None:
    await stage.until(lambda: "".join(notes(stage)).endswith(words))


async def test_a_damaged_history_is_one_notice_and_a_new_one_is_written(path: Path):
    path.write_bytes(b"\x00\xff rubbish" * 1000)
    async with kept_chat(ScriptedEngine(HELLO, SHORT)) as stage:
        await tells_once_and_goes_on(stage, "was damaged and is now", "a new one has been started")
    assert chats() == [["one", BYE, "two", "Bye."]]


@pytest.mark.slow
async def test_a_newer_history_is_one_notice_and_stays_as_it_is(path: Path):
    with History() as history:
        chat(history, "kept")
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    sink = Writer()
    async with open_chat(ScriptedEngine(HELLO, SHORT), sink=sink) as stage:
        await tells_once_and_goes_on(stage, "written by a newer localspec", UPDATE)
    assert sink.close() is not None
    assert contents(path) == ["kept"]


@pytest.mark.slow
async def test_a_folder_that_cannot_be_made_is_one_notice_and_the_reason_at_the_end(monkeypatch: pytest.MonkeyPatch):
    """The list of chats says why it is empty, where there is one."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", "/dev/null/x")
    sink = Writer()
    async with open_chat(ScriptedEngine(HELLO, SHORT), sink=sink, size=(150, 36)) as stage:
        await tells_once_and_goes_on(stage, "/dev/null/x cannot be created", "LOCALSPEC_DATA_DIR")
        await stage.until(lambda: "/dev/null/x cannot be created" in str(stage.chat.sidebar.line.content))
    assert "/dev/null/x" in sink.close().message  # type: ignore[union-attr]


async def test_a_locked_history_is_one_notice_and_is_written_when_it_is_free(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    History().close()
    monkeypatch.setattr(database.connect, "__kwdefaults__", {"timeout": 0.02})
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    async with kept_chat(ScriptedEngine(HELLO, SHORT)) as stage:
        await tells_once_and_goes_on(stage, "Another program keeps the history")
        other.close()
        await stage.until(lambda: len(notes(stage)) == 2)
        assert notes(stage)[1] == writer.AGAIN.message
    assert chats() == [["one", BYE, "two", "Bye."]]


async def test_a_read_only_history_is_one_notice_and_the_reason_at_the_end(path: Path):
    sink = Writer()
    async with open_chat(ScriptedEngine(SHORT, HELLO, SHORT), sink=sink) as stage:
        await ask(stage, "kept")
        await stage.until(lambda: stage.chat.chats.chat_id and contents(path) == ["kept", "Bye."])
        sink._history._database.read("PRAGMA query_only = ON")  # type: ignore[union-attr]
        await ask(stage, "lost")
        await stage.until(lambda: notes(stage))
        await ask(stage, "lost, too")
        assert len(notes(stage)) == 1
    assert "read-only" in sink.close().message  # type: ignore[union-attr]
    assert contents(path) == ["kept", "Bye."]


async def test_a_full_disk_is_one_notice_and_is_used_again_when_there_is_space(path: Path):
    long = answer(*(step("word " * 3_000, " ") for _ in range(5)))
    async with kept_chat(ScriptedEngine(SHORT, long, SHORT)) as stage:
        await ask(stage, "kept")
        await stage.until(lambda: stage.chat.chats.chat_id and contents(path) == ["kept", "Bye."])
        db = stage.chat.recorder._sink._history._database  # type: ignore[union-attr]
        (pages,) = db.read("PRAGMA page_count")[0]
        db.read(f"PRAGMA max_page_count = {pages}")
        await ask(stage, "long")
        await stage.until(lambda: notes(stage))
        await ask(stage, "more")
        (note,) = notes(stage)
        assert "is full" in note
        assert sound(path)
        db.read("PRAGMA max_page_count = 1073741823")
        await stage.until(lambda: len(notes(stage)) == 2)
    assert [text[:5] for text in contents(path)] == ["kept", "Bye.", "long", "word ", "more", "Bye."]


FULL_TIMES = [(3, 0), *(pytest.param(25, seed, marks=pytest.mark.slow) for seed in (1, 2))]  # 50 in all


@pytest.mark.slow
@pytest.mark.parametrize(("times", "seed"), FULL_TIMES)
async def test_whenever_the_disk_is_full_the_answer_stays_on_the_screen_and_is_kept_later(
    path: Path, times: int, seed: int
):
    """G3: at any page, again and again in one chat."""
    dice, said = random.Random(seed), list[str]()
    answers = [[f"{n} ", "word " * dice.randrange(3000, 6000), f"end{n}."] for n in range(times)]
    engine = ScriptedEngine(SHORT, *(answer(*(step(text, accepted=0) for text in texts)) for texts in answers))
    async with kept_chat(engine) as stage:
        await ask(stage, "first")
        await stage.until(lambda: stage.chat.chats.chat_id and contents(path) == ["first", "Bye."])
        db = stage.chat.recorder._sink._history._database  # type: ignore[union-attr]
        for number, texts in enumerate(answers):
            before = set(stage.chat.query(Note))  # those of long ago leave the transcript

            def told() -> list[str]:
                return [str(note.content) for note in stage.chat.query(Note) if note not in before]  # noqa: B023

            db.read("VACUUM")  # pages that the index has left would be used first
            (pages,) = db.read("PRAGMA page_count")[0]
            db.read(f"PRAGMA max_page_count = {pages + dice.randrange(3)}")
            await ask(stage, f"question {number}")
            await stage.until(told)
            assert "is full" in told()[0]
            await stage.sees(f"end{number}.")
            assert sound(path)
            db.read("PRAGMA max_page_count = 1073741823")
            await stage.until(lambda: writer.AGAIN.message in told())
            said += [f"question {number}", "".join(texts)]
    assert contents(path) == ["first", "Bye.", *said]
    print(f"\n{times} times full")


# --- two programs


@pytest.mark.slow
async def test_two_chats_on_one_history_do_not_touch_each_other():
    async with kept_chat(ScriptedEngine(HELLO, SHORT)) as one, kept_chat(ScriptedEngine(SHORT, HELLO)) as two:
        for number in (1, 2):
            await ask(one, f"one {number}")
            await ask(two, f"two {number}")
        assert notes(one) == notes(two) == []
    assert chats() == [["two 1", "Bye.", "two 2", BYE], ["one 1", BYE, "one 2", "Bye."]]


async def test_two_programs_that_go_on_with_one_chat_make_two_branches():
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await ask(stage, "root")
    past = recall()
    async with (
        kept_chat(ScriptedEngine(SHORT), past=past) as one,
        kept_chat(ScriptedEngine(SHORT), past=past) as two,
    ):
        await ask(one, "left")
        await ask(two, "right")
    opened = recall()
    assert [said.content for said in opened.branch] == ["root", BYE, "right", "Bye."]
    assert len(opened.tree.children(past.chat.head_id)) == 2


CHATS = """
import asyncio
from localspec.history import Writer
from tests.support.chat_stage import open_chat
from tests.support.scripted_engine import ScriptedEngine, answer, step
from localspec.tui.screens import chat as chat_module
chat_module.SAVE_SECONDS = 0.02
async def main():
    engine = ScriptedEngine(*[answer(*(step(f"{i} ", "word ") for i in range(1000)))] * 3, paused=True)
    async with open_chat(engine, sink=Writer()) as stage:
        engine.permit(1)
        await stage.ready()
        for question in ("one", "two", "three"):
            await stage.send(question)
            while stage.chat.state.phase != "idle":
                engine.permit(10)
                await stage.pilot.pause(0.01)
asyncio.run(main())
"""


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL")
@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_chat_killed_in_mid_answer_keeps_what_was_written(path: Path, kills: int):
    """A real process with the real screen, killed with -9: what another program could read is still there, and more."""
    with History() as history:
        chat(history, "before", "Bye.")
    for _ in range(kills):
        before = len(contents(path))
        with child(CHATS) as chatting:
            while len(contents(path)) < before + 2 or len(contents(path)[-1]) < 100:
                assert chatting.poll() is None
                time.sleep(0.01)
            seen = contents(path)
            chatting.kill()
            assert chatting.stdout is not None
            assert chatting.stdout.read() == ""
        kept = contents(path)
        assert kept[: len(seen) - 1] == seen[:-1]
        assert kept[len(seen) - 1].startswith(seen[-1])
        assert sound(path)
        last = saved()[-1]
        assert (last.role, last.status) == ("assistant", "partial")
        with History() as history:
            assert "".join(round_.text for round_ in history.steps(last.id)) == last.content
    assert kept[:2] == ["before", "Bye."]


# --- the command


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[ChatApp]:
    """The programs that `localspec chat` would have shown."""
    shown: list[ChatApp] = []

    def show(app: ChatApp, **_: object) -> None:
        shown.append(app)

    monkeypatch.setattr(app_module, "no_screen", lambda: "")
    monkeypatch.setattr(ChatApp, "run", show)
    return shown


def localspec(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["localspec", *words])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def past(app: ChatApp) -> OpenChat:
    assert app.chat.past is not None
    return app.chat.past


def test_the_chat_that_goes_on_is_the_last_or_the_named_one(
    opened: list[ChatApp], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with History() as history:
        first, second = chat(history, "one")[0], chat(history, "two")[0]
    for words, chat_id in (
        (("-c",), second.chat_id),
        (("--continue",), second.chat_id),
        (("guide", "--chat", first.chat_id), first.chat_id),
        (("--chat", first.chat_id[:7]), first.chat_id),
    ):
        assert localspec(monkeypatch, "chat", *words) == 0, capsys.readouterr()
        assert past(opened[-1]).chat.id == chat_id


def test_a_chat_goes_on_with_the_drafter_that_was_chosen_in_it(
    opened: list[ChatApp], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Unless a flag names another, or another model goes on, for which it may not even be one."""
    chats = {}
    with History() as history:
        for model in ("guide", "elsewhere"):
            asked = history.begin(NewChat(model), "one")
            made = Generation(model, params={"draft": "early-exit:3"})
            history.save(reply(history, asked, "").id, StoredAnswer("two", made))
            chats[model] = asked.chat_id
    for words, draft in (
        (("--chat", chats["guide"]), "early-exit:3"),
        (("--chat", chats["guide"], "--draft", "off"), "off"),
        (("guide",), "auto"),
        (("guide", "--chat", chats["elsewhere"]), "auto"),
    ):
        assert localspec(monkeypatch, "chat", *words) == 0, capsys.readouterr()
        assert opened[-1].chat.tuning.load.draft == draft


def test_a_chat_goes_on_with_its_own_model(
    opened: list[ChatApp], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").touch()
    asked: list[LoadRequest] = []
    monkeypatch.setattr("localspec.runtime.worker.EngineProcess", asked.append)
    with History() as history:
        history.begin(NewChat(str(folder)), "hi")
    for words, model in (((), str(folder)), (("guide",), "guide")):
        assert localspec(monkeypatch, "chat", *words, "-c") == 0
        opened[-1].chat.engine.make_engine()
        assert asked[-1].model == model
    (folder / "config.json").unlink()
    folder.rmdir()
    assert localspec(monkeypatch, "chat", "-c") == 3
    refused = capsys.readouterr().err
    assert f"The model of this chat is missing. There is no folder or file {folder}." in refused
    assert "Go on with another: localspec chat guide --chat " in refused


def test_a_folder_is_kept_by_its_whole_path(opened: list[ChatApp], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    assert localspec(monkeypatch, "chat", "./model") == 0
    assert opened[0].chat.recorder._chat.model_key == str(tmp_path / "model")


EXCLUDE = "--continue, --chat and --no-history cannot be combined. Use one of them."


@pytest.mark.parametrize(
    ("words", "exit_code", "sentence"),
    [
        (("-c",), 3, "There is no chat to continue. Start one: localspec chat"),
        (("--chat", "nope\x1b[2J"), 3, "There is no chat 'nope␛[2J'. List the chats: localspec history ls"),
        (("-c", "--chat", "x"), 2, EXCLUDE),
        (("-c", "--no-history"), 2, EXCLUDE),
    ],
)
def test_a_chat_that_cannot_go_on_is_one_sentence(
    words: tuple[str, ...],
    exit_code: int,
    sentence: str,
    opened: list[ChatApp],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    assert localspec(monkeypatch, "chat", *words) == exit_code
    assert capsys.readouterr().err == f"error: {sentence}\n"
    assert opened == []


def test_no_history_makes_no_file(opened: list[ChatApp], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert localspec(monkeypatch, "chat", "--no-history") == 0
    assert opened[0].chat.recorder._sink is None
    assert not (tmp_path / "data").exists()


def test_what_could_not_be_written_is_said_when_the_screen_is_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def run(app: ChatApp, **_: object) -> None:
        app.chat.recorder.start(lambda _: None)
        app.chat.recorder.ask(Conversation().ask("hi"), Stats())

    paths.history_file().mkdir()
    monkeypatch.setattr(app_module, "no_screen", lambda: "")
    monkeypatch.setattr(ChatApp, "run", run)
    assert localspec(monkeypatch, "chat") == 0
    assert capsys.readouterr().err.startswith(f"warning: The history {paths.history_file()} cannot be opened")


def titles() -> list[tuple[str, list[str]]]:
    """Every chat's title with its messages, the one used last first."""
    with History() as history:
        opened = [history.open(each.id) for each in history.chats()]
        return [(each.chat.title, [said.content for said in each.tree.nodes.values()]) for each in opened]


async def test_a_chat_that_begins_since_the_open_one_was_deleted_is_called_after_its_own_question():
    async with kept_chat(ScriptedEngine(HELLO, HELLO, HELLO)) as stage:
        await ask(stage, "the deleted question")
        await stage.until(lambda: stage.chat.chats.chat_id)
        with History() as other:
            other.delete(other.chats()[0].id)
        await ask(stage, "a question that stays")
        await stage.until(lambda: stage.chat.state.title == "a question that stays")
        await ask(stage, "one more of it")
        assert stage.chat.recorder.title == "a question that stays"
    assert titles() == [("a question that stays", ["a question that stays", BYE, "one more of it", BYE])]


async def test_a_chat_that_was_deleted_while_it_was_answered_gives_its_title_to_no_other(path: Path):
    engine = ScriptedEngine(HELLO, HELLO, paused=True)
    async with kept_chat(engine) as stage:
        engine.permit(3)
        await stage.send("the deleted question")
        await stage.until(lambda: "Hello there" in contents(path))
        with History() as other:
            other.delete(other.chats()[0].id)
        engine.permit(20)
        await stage.sees("next message starts a new chat.")
        await ask(stage, "a question that stays")
        assert stage.chat.state.title == "a question that stays"
    assert titles() == [("a question that stays", ["a question that stays", BYE])]


async def test_the_chat_of_a_first_question_that_waits_is_the_running_one_in_the_list():
    """Chosen there, it was deleted, and opened again without its question and with its title."""
    engine = ScriptedEngine(HELLO, paused=True)
    async with kept_chat(engine) as stage:
        await stage.send("the first question")
        await stage.sees("queued")
        with History() as history:
            (own,) = history.chats()
        await stage.until(lambda: stage.chat.chats.chat_id == own.id)
        stage.chat.post_message(Sidebar.Chosen(own.id))
        await stage.pilot.pause()
        assert stage.chat.state.queued is not None
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.chat.prompt.text == "the first question" and stage.chat.chats.chat_id is None)
        await stage.pilot.press("ctrl+u")
        engine.permit(20)
        await ask(stage, "another question")
    assert titles() == [("another question", ["another question", BYE])]
