"""Files and long pastes as attachments: what is read, what is refused, what the model and the history are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from textual import events
from textual.app import App, ComposeResult

from localspec.core.errors import UsageError
from localspec.core.text_file import not_utf8
from localspec.history import Attachment, History, with_attachments
from localspec.history.export import export
from localspec.history.references import file as file_reference
from localspec.tui.chat.attachments import (
    MAX_BYTES,
    PASTE_CHARACTERS,
    doubtful,
    file_named,
    from_file,
    just_mentioned,
    mentioned,
    no_file,
    paths_mentioned,
)
from localspec.tui.chat.conversation import turns
from localspec.tui.chat.saved_chat import conversation
from localspec.tui.panels.lines import Lines, wrapped
from localspec.tui.panels.pills import Chips
from localspec.tui.panels.prompt import doubts
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat
from tests.support.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.heavy

NOTES = "one\r\n``` two\n\x1b[2J[/nope]\n"
READ = "one\n``` two\n\x1b[2J[/nope]"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    file = tmp_path / "[my] notes.md"
    file.write_bytes(NOTES.encode())
    return file


def test_no_text_can_end_its_own_fence():
    files = [Attachment("a\nb.md", text="x\n````\ny\n"), Attachment(None, text="plain")]
    assert (
        with_attachments("Why?", files) == "a b.md:\n`````\nx\n````\ny\n`````\n\nPasted text:\n```\nplain\n```\n\nWhy?"
    )
    assert with_attachments("Why?", ()) == "Why?"
    assert with_attachments("", files[1:]) == "Pasted text:\n```\nplain\n```"


def test_what_is_no_text_file_is_refused_in_one_sentence(tmp_path: Path):
    cases = {
        "missing": (None, "There is no file"),
        "zeros": (b"a\0b", "is not a text file"),
        "latin": (b"caf\xe9", "is not UTF-8 text"),
        "huge": (b"x" * (MAX_BYTES + 1), "is larger than 1 MB"),
    }
    for name, (content, sentence) in cases.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=sentence):
            from_file(str(tmp_path / name))
    with pytest.raises(UsageError, match="is not a file"):
        from_file(str(tmp_path))
    with pytest.raises(UsageError):
        from_file("x" * 5000)
    with pytest.raises(UsageError, match="There is no file ~no-such-user/x"):
        from_file("~no-such-user/x")
    assert file_named("~no-such-user/x") is file_named("x" * 5000) is file_named("") is None


def numbered(file: Path, count: int) -> Path:
    file.write_text("".join(f"line {number}\n" for number in range(1, count + 1)))
    return file


@pytest.mark.parametrize(
    ("asked", "named", "text"),
    [
        (":2-3", ":2-3", "line 2\nline 3\n"),
        (":2", ":2", "line 2\n"),
        (":2-2", ":2", "line 2\n"),
        ("#L2-L3", ":2-3", "line 2\nline 3\n"),
        ("#L2-3", ":2-3", "line 2\nline 3\n"),
        ("#L4", ":4", "line 4\n"),
    ],
)
def test_lines_of_a_file_are_read_and_the_attachment_names_them(asked: str, named: str, text: str, tmp_path: Path):
    file = numbered(tmp_path / "heap.py", 4)
    read = from_file(f"{file}{asked}")
    assert (read.path, read.text) == (f"{file}{named}", text)
    assert with_attachments("Why?", [read]).startswith(f"{file}{named}:\n```\n{text}```")
    mention = f"see @{file}{asked}, please"
    assert [file_named(name) for name in mentioned(mention)] == [f"{file}{asked}"]
    assert read.path in paths_mentioned(mention)
    assert str(file) not in paths_mentioned(mention)


def test_lines_that_a_file_does_not_have_are_said_in_a_sentence(tmp_path: Path):
    file, one, empty = numbered(tmp_path / "heap.py", 4), tmp_path / "one", tmp_path / "empty"
    one.write_text("no end of the line")
    empty.touch()
    assert from_file(f"{one}:1").text == "no end of the line"
    for name, sentence in {
        f"{file}:3-5": f"{file}:3-5 is beyond the end: {file} has 4 lines. Name lines that it has.",
        f"{file}:9": f"{file}:9 is beyond the end: {file} has 4 lines. Name lines that it has.",
        f"{one}#L2": f"{one}:2 is beyond the end: {one} has 1 line. Name lines that it has.",
        f"{empty}:1": f"{empty}:1 is beyond the end: {empty} has 0 lines. Name another file.",
        f"{file}:3-2": f"{file}:3-2 names no lines. Name the first line, then the last: @heap.py:10-20",
        f"{file}:0-2": f"{file}:0-2 names no lines. Name the first line, then the last: @heap.py:10-20",
        f"{tmp_path}/none.py:1-2": f"There is no file {tmp_path}/none.py. Choose a file: /attach PATH",
    }.items():
        with pytest.raises(UsageError) as raised:
            from_file(name)
        assert str(raised.value) == sentence
    with pytest.raises(UsageError, match="it is not a file"):
        from_file(f"{tmp_path}:1-2")


def test_lines_of_a_file_that_is_too_large_as_a_whole_are_read(tmp_path: Path):
    file = tmp_path / "big.log"
    file.write_text("x" * (MAX_BYTES + 9) + "\n" + "second\n" * 200_000)
    with pytest.raises(UsageError) as raised:
        from_file(str(file))
    assert str(raised.value) == f"{file} is larger than 1 MB. Attach some of its lines: @{file}:1-200"
    assert from_file(f"{file}:2-3").text == "second\nsecond\n"
    with pytest.raises(UsageError, match=r"big\.log:1-2 is larger than 1 MB\. Name fewer lines\."):
        from_file(f"{file}:1-2")
    with pytest.raises(UsageError, match=r"beyond the end: .* has 200,001 lines"):
        from_file(f"{file}:200002")


def test_a_file_whose_own_name_ends_as_lines_do_is_itself(tmp_path: Path):
    (tmp_path / "log#L2").write_text("whole")
    numbered(tmp_path / "log", 3)
    read = from_file(str(tmp_path / "log#L2"))
    assert (read.path, read.text) == (str(tmp_path / "log#L2"), "whole")
    assert read.path in paths_mentioned(f"@{tmp_path}/log#L2")


def test_what_looks_like_a_place_in_a_file_is_doubtful():
    assert [*doubtful("@none.py:10-20 @none.py#L3 @none.py:main() @none.py:3:7 @user:main")] == [
        "none.py:10-20",
        "none.py#L3",
        "none.py:3:7",
    ]
    assert no_file("none.py:10-20") == "There is no file none.py."


def test_a_word_that_is_the_name_of_a_folder_is_doubtful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    assert doubts("@sub what, @other, mail@sub", frozenset()) == ("sub is a folder.",)
    assert doubts("@sub\ndef f(): ...", frozenset()) == ()


def test_a_file_is_read_as_text(notes: Path):
    read = from_file(str(notes))
    assert (read.path, read.mime, read.text) == (str(notes), "text/plain", NOTES.replace("\r\n", "\n"))
    assert len(read.sha256 or "") == 64


def test_what_is_no_utf_8_is_said_as_localspec_run_says_it(tmp_path: Path):
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(UsageError) as raised:
        from_file(str(tmp_path / "latin"))
    assert str(raised.value).endswith(str(not_utf8("latin")))
    assert raised.value.hint == "Convert it first, e.g. with iconv."


def test_what_is_there_and_no_file_is_not_said_to_be_missing(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.py")
    assert no_file(str(tmp_path / "pipe.py")).endswith("pipe.py is not a file.")
    assert no_file(str(tmp_path)).endswith("is a folder.")
    assert no_file("none.py") == "There is no file none.py."


@pytest.mark.parametrize(
    "text", ["(@{0})", '"@{0}"', "“@{0}”", "„@{0}“", "«@{0}»", "'@{0}', and", "[@{0}].", '(@"{0}")']
)
def test_a_mention_may_stand_in_brackets_or_quotation_marks(text: str, tmp_path: Path):
    (tmp_path / "letter.txt").write_text("x")
    file = str(tmp_path / "letter.txt")
    assert [file_named(name) for name in mentioned(f"sum up {text.format(file)}")] == [file]
    assert file in paths_mentioned(text.format(file))
    assert [*doubtful(text.format("letter.txt"))] == ["letter.txt"]


def test_addresses_and_decorators_are_no_mentions():
    assert not [*mentioned("(me@home.org) “me@home.org” a@b")]
    assert not [*doubtful("(@property) [@Override] from '@angular/core'; import \"@types/node.js\"")]


def test_a_mention_begins_a_word():
    assert [*mentioned('@a.md, x@y.z and @"b c.txt" (@d)\n@e')] == ["a.md,", "b c.txt", "d)", "e"]
    assert just_mentioned("see @a.md ") == "a.md"
    assert just_mentioned('see @"b c.txt" ') == "b c.txt"
    assert just_mentioned("see @a.md") is None
    assert just_mentioned("me@a.md ") is None


async def test_a_file_is_attached_told_to_the_model_and_kept(notes: Path):
    engine = ScriptedEngine(HELLO, HELLO)
    async with kept_chat(engine) as stage:
        await stage.ready()
        await stage.send(f"/attach {notes}")
        await stage.sees("[my] notes.md, 24 characters]")
        await stage.send("What is it?")
        await stage.sees("Bye.", "idle", "[my] notes.md, 24 characters]")
        assert "two" not in stage.seen
        assert not stage.chat.prompt.pills.display
        expected = f"{notes}:\n````\n{READ}\n````\n\nWhat is it?"
        assert engine.requests[0].messages[-1].content == expected  # type: ignore[index]
        await stage.send("And now?")
        await stage.until(lambda: len(engine.requests) == 2 and stage.chat.state.phase == "idle")
        assert engine.requests[1].messages[0].content == expected  # type: ignore[index]
    with History() as history:
        opened = history.open(history.chats()[0].id)
    first = opened.branch[0]
    assert (first.content, first.attachments[0].text, opened.chat.title) == (
        "What is it?",
        NOTES.replace("\r\n", "\n"),
        f"{notes.name}: What is it?",
    )
    assert next(turns(conversation(opened, None).branch)).content == expected
    assert "````" in export(opened, lambda _: (), "openai")
    async with open_chat(ScriptedEngine(), past=opened, size=(80, 30)) as stage:
        await stage.sees("[my] notes.md, 24 characters]", "What is it?")


async def test_a_long_paste_is_a_pill_and_backspace_takes_the_last():
    text = "x" * (PASTE_CHARACTERS + 1)
    engine = ScriptedEngine(HELLO)
    async with open_chat(engine) as stage:
        await stage.ready()
        await stage.write(text)
        await stage.write("y" * 2 * len(text))
        await stage.sees("[pasted text, 2,501 characters] [pasted text, 5,002 characters]")
        assert stage.chat.prompt.text == ""
        await stage.write("q")
        await stage.pilot.press("backspace", "backspace")
        await stage.until(lambda: "5,002" not in stage.seen)
        await stage.sees("[pasted text, 2,501 characters]")
        await stage.pilot.press("enter")
        await stage.sees("Bye.", "idle")
        assert engine.requests[0].messages[-1].content == f"Pasted text:\n```\n{text}\n```"  # type: ignore[index]


async def test_a_paste_of_a_megabyte_is_a_pill_at_once():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        stage.app.post_message(events.Paste("\x1b[31mred\x1b[0m line\r" * 60_000))
        await stage.pilot.press("o", "k")
        await stage.sees("[pasted text, 1,080,000 characters]", "ok")
        assert not stage.chat.prompt.document.get_line(0).startswith("␛")


async def test_what_ctrl_v_pastes_is_a_pill_too_where_it_is_long():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        stage.app.copy_to_clipboard("x" * MAX_BYTES)
        await stage.pilot.press("o", "ctrl+v", "k")
        await stage.sees("[pasted text, 1,000,000 characters]", "ok")
        assert stage.chat.prompt.text == "ok"
        stage.app.copy_to_clipboard(" short")
        await stage.pilot.press("ctrl+v")
        await stage.until(lambda: stage.chat.prompt.text == "ok short")


async def test_at_names_a_file_as_it_is_typed_and_when_it_is_sent(notes: Path, tmp_path: Path):
    (tmp_path / "b.txt").write_text("bees")
    engine = ScriptedEngine(HELLO)
    async with open_chat(engine, size=(120, 30)) as stage:
        await stage.ready()
        await stage.write(f'@"{notes}"')
        await stage.pilot.press("space")
        await stage.sees("notes.md, 24 characters]")
        await stage.send(f"and @{tmp_path / 'b.txt'}, with @nobody.")
        await stage.sees("Bye.", "idle", "b.txt, 4 characters]", "@nobody")
        content = engine.requests[0].messages[-1].content  # type: ignore[index]
        assert content.count("bees") == content.count("[/nope]") == 1


async def test_a_file_is_detached_with_its_mention_and_undo_brings_both_back(notes: Path, tmp_path: Path):
    (tmp_path / "b.txt").write_text("bees")
    async with open_chat(ScriptedEngine(HELLO), size=(120, 30)) as stage:
        await stage.ready()

        def attached() -> list[str]:
            return [Path(one.path or "").name for one in stage.chat.prompt.pills.attachments]

        await stage.send(f"/attach {tmp_path / 'b.txt'}")
        await stage.until(lambda: attached() == ["b.txt"])
        await stage.write(f'read @"{notes}"')
        await stage.pilot.press("space")
        await stage.until(lambda: attached() == ["b.txt", notes.name])
        await stage.pilot.press("backspace", "backspace")
        await stage.until(lambda: attached() == ["b.txt"])
        await stage.pilot.press("ctrl+underscore")
        await stage.until(lambda: attached() == ["b.txt", notes.name])
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: attached() == [])
        await stage.pilot.press("ctrl+underscore")
        await stage.until(
            lambda: attached() == [notes.name],
        )


async def test_of_a_file_that_has_changed_only_the_newest_version_is_sent_and_that_is_said(tmp_path: Path):
    """Also where a question is edited or taken back: its file stands there as it was when it was sent."""
    file = tmp_path / "calc.py"
    file.write_text("old")
    engine = ScriptedEngine(HELLO, HELLO, HELLO)
    async with kept_chat(engine, size=(120, 30)) as stage:
        await stage.ready()
        await stage.write(f"@{file}")
        await stage.pilot.press("space")
        await stage.sees("calc.py, 3 characters]")
        for number, text in enumerate(("newer", "newest", "the last"), 1):
            file.write_text(text)
            await stage.send(f"question {number}")
            await stage.hints("calc.py had changed: it was sent as it is now.")
            await stage.until(lambda asked=number: len(engine.requests) == asked)
            await stage.ready()
            said = stage.chat.conversation.last("user")
            assert said is not None
            assert [one.text for one in said.attachments] == [text]
            await stage.pilot.press("up" if number == 1 else "alt+z")
            await stage.until(lambda asked=number: stage.chat.prompt.text.endswith(f"question {asked}"))


async def sent_paths(stage: Stage, text: str) -> list[str | None]:
    await stage.write(text)
    await stage.pilot.press("enter")
    await stage.until(lambda: not stage.chat.prompt.text and stage.chat.state.phase == "idle")
    asked = stage.chat.conversation.last("user")
    assert asked is not None
    return [one.path for one in asked.attachments]


async def test_lines_go_along_as_a_file_does_each_range_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In their newest version, shown with their numbers; and taken away each by itself."""
    file = numbered(tmp_path / "heap.py", 30)
    numbered(tmp_path / "a b.py", 9)
    monkeypatch.chdir(tmp_path)
    engine = ScriptedEngine(HELLO, HELLO, HELLO)
    async with kept_chat(engine, size=(120, 30)) as stage:
        await stage.ready()
        pills = stage.chat.prompt.pills

        def attached() -> list[str | None]:
            return [one.path for one in pills.attachments]

        await stage.send("/attach heap.py:28-30")
        await stage.until(lambda: attached() == ["heap.py:28-30"])
        await stage.send('/attach "a b.py":2')
        await stage.until(lambda: attached() == ["heap.py:28-30", "a b.py:2"])
        await stage.write("compare @heap.py:9-11")
        await stage.pilot.press("space")
        await stage.sees("[heap.py:28-30, 24 characters] [a b.py:2, 7 characters] [heap.py:9-11, 23 characters]")
        await stage.pilot.press("up", "enter")
        await stage.sees("heap.py:9-11 (3 of 3)", " 9  line 9", "11  line 11", "3 lines · 23 characters")
        await stage.pilot.press("escape")
        await stage.until(lambda: pills.has_focus)
        await stage.pilot.press("left", "backspace", "down")
        await stage.until(lambda: attached() == ["heap.py:28-30", "heap.py:9-11"])
        await stage.write('@heap.py#L9-L11 and @"a b.py":3-4')
        file.write_text(file.read_text().replace("line 10", "newer"))
        await stage.pilot.press("enter")
        await stage.hints("heap.py:9-11 had changed: it was sent as it is now.")
        await stage.until(lambda: len(engine.requests) == 1)
        await stage.ready()
        said = stage.chat.conversation.last("user")
        assert said is not None
        assert [one.path for one in said.attachments] == ["heap.py:28-30", "heap.py:9-11", "a b.py:3-4"]
        assert said.attachments[1].text == "line 9\nnewer\nline 11\n"
        assert [one.name for one in map(file_reference, said.attachments)][:1] == ["heap.py:28-30"]
        await stage.pilot.press("up")
        await stage.until(lambda: "#L9-L11" in stage.chat.prompt.text)
        file.write_text(file.read_text().replace("newer", "newest"))
        await stage.pilot.press("enter")
        await stage.until(lambda: len(engine.requests) == 2)
        await stage.ready()
        edited = stage.chat.conversation.last("user")
        assert edited is not None
        assert edited.attachments[1].text == "line 9\nnewest\nline 11\n", "though it was sent under another name"
    with History() as history:
        opened = history.open(history.chats()[0].id)
    assert "heap.py:28-30:" in export(opened, lambda _: (), "md")


async def test_lines_have_names_as_files_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two names of the same lines are one; what is not there is refused; without its mention it is detached."""
    (tmp_path / "link.py").symlink_to(numbered(tmp_path / "heap.py", 30))
    monkeypatch.chdir(tmp_path)
    async with open_chat(ScriptedEngine(HELLO), size=(120, 30)) as stage:
        await stage.ready()
        pills = stage.chat.prompt.pills
        assert await sent_paths(stage, "@heap.py:9 @link.py:9 @link.py:10") == ["link.py:9", "link.py:10"]
        await stage.send("@heap.py:29-31 what")
        await stage.hints("heap.py:29-31 is beyond the end: heap.py has 30 lines.")
        assert stage.chat.prompt.text == "@heap.py:29-31 what"
        await stage.pilot.press("ctrl+c")
        await stage.write("@heap.py:1-2")
        await stage.pilot.press("space")
        await stage.until(lambda: [one.path for one in pills.attachments] == ["heap.py:1-2"])
        await stage.pilot.press("backspace", "backspace")
        await stage.until(lambda: not pills.attachments)


async def test_a_folder_is_asked_about_before_its_name_is_sent_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    engine = ScriptedEngine(HELLO)
    async with open_chat(engine) as stage:
        await stage.ready()
        await stage.send("@sub what")
        await stage.sees("Send it as text?", "sub is a folder.")
        assert not engine.requests


async def test_a_file_with_two_names_goes_along_once_and_stays_away_under_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "notes.txt"
    file.write_text("my notes")
    (tmp_path / "copy.txt").write_text("my notes")
    monkeypatch.chdir(tmp_path)
    engine = ScriptedEngine(HELLO, HELLO, HELLO)
    async with kept_chat(engine, size=(120, 30)) as stage:
        await stage.ready()
        pills = stage.chat.prompt.pills

        assert await sent_paths(stage, f"@notes.txt and @{file} and @copy.txt ?") == [str(file), "copy.txt"]
        await stage.write(f"@notes.txt and @{file} ")
        await stage.until(lambda: [one.path for one in pills.attachments] == [str(file)])
        for _ in range(len(f"@{file} ")):
            await stage.pilot.press("backspace")
        await stage.until(lambda: stage.chat.prompt.text == "@notes.txt and ")
        assert len(pills.attachments) == 1, "the other name is still there"
        pills.take_away()
        assert await sent_paths(stage, "more") == []


async def test_a_file_that_was_removed_from_the_bar_is_not_sent_though_the_text_names_it(tmp_path: Path):
    file = tmp_path / "calc.py"
    file.write_text("secret")
    engine = ScriptedEngine(HELLO, HELLO, HELLO, HELLO)
    async with kept_chat(engine, size=(120, 30)) as stage:
        await stage.ready()
        await stage.write(f"@{file}")
        await stage.pilot.press("space")
        await stage.sees("calc.py, 6 characters]")
        await stage.pilot.press(*"what", "up", "backspace", "down")
        await stage.until(lambda: not stage.chat.prompt.pills.attachments)
        await stage.pilot.press("enter")
        await stage.until(lambda: len(engine.requests) == 1)
        await stage.ready()
        assert not stage.chat.conversation.branch[0].attachments

        await stage.pilot.press("up")
        await stage.until(lambda: stage.chat.prompt.text == f"@{file} what")
        await stage.pilot.press("enter")
        await stage.until(lambda: len(engine.requests) == 2)
        await stage.ready()
        assert not stage.chat.conversation.branch[0].attachments, "an edited question has the files that it had"

        await stage.send(f"and @{file} here")
        await stage.until(lambda: len(engine.requests) == 3)
        await stage.ready()
        assert [one.text for one in stage.chat.conversation.branch[-2].attachments] == ["secret"]
        await stage.pilot.press("up")
        await stage.sees("calc.py, 6 characters]")
        await stage.pilot.press("up", "delete", "x", "enter")
        await stage.until(lambda: len(stage.chat.conversation.tree) == 8)
        assert not stage.chat.conversation.branch[-2].attachments


async def test_a_file_removed_from_the_bar_is_attached_again_when_it_is_named_anew(tmp_path: Path):
    file = tmp_path / "calc.py"
    file.write_text("text")
    async with open_chat(ScriptedEngine(HELLO), size=(120, 30)) as stage:
        await stage.ready()
        for _ in range(2):
            await stage.write(f"@{file}")
            await stage.pilot.press("space")
            await stage.sees("calc.py, 4 characters]")
            await stage.pilot.press("home", "backspace", "end", "space")
            assert not stage.chat.prompt.pills.attachments
            await stage.pilot.press("ctrl+u")
            await stage.until(lambda: not stage.chat.prompt.text)


async def test_a_file_that_is_gone_by_now_goes_with_its_question_as_it_was(tmp_path: Path):
    file = tmp_path / "calc.py"
    file.write_text("text")
    engine = ScriptedEngine(HELLO, HELLO)
    async with kept_chat(engine, size=(120, 30)) as stage:
        await stage.ready()
        await stage.asks(f"what is @{file}", "Bye.")
        await stage.ready()
        file.unlink()
        await stage.pilot.press("up", "space", "x", "enter")
        await stage.until(lambda: len(engine.requests) == 2)
        assert "text" in engine.requests[1].messages[-1].content  # type: ignore[operator]


async def test_what_cannot_be_attached_is_said_and_nothing_is_lost(tmp_path: Path):
    (tmp_path / "zeros").write_bytes(b"a\0b")
    engine = ScriptedEngine(HELLO)
    async with open_chat(engine) as stage:
        await stage.ready()
        await stage.send(f"/attach {tmp_path}/none")
        await stage.sees("There is no file")
        assert stage.chat.prompt.text == f"/attach {tmp_path}/none"
        await stage.pilot.press("ctrl+c")
        await stage.send(f"look at @{tmp_path}/zeros")
        await stage.hints("is not a text file")
        assert stage.chat.prompt.text == f"look at @{tmp_path}/zeros"
        assert not engine.requests


@pytest.mark.slow
async def test_what_waits_keeps_its_pills():
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(1)
        await stage.send("one")
        await stage.sees("reading prompt")
        await stage.write("z" * 3000)
        await stage.send("two")
        await stage.sees("You · queued", "[pasted text, 3,000 characters]")
        await stage.write("w" * 4000)
        await stage.send("three")
        await stage.until(lambda: stage.chat.prompt.text == "three" and len(stage.chat.prompt.pills.attachments) == 1)
        engine.permit()


async def test_ctrl_c_clears_the_prompt_and_what_is_attached():
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        await stage.write("w" * 4000)
        await stage.until(lambda: stage.chat.prompt.pills.attachments)
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: not stage.chat.prompt.pills.attachments)


async def test_what_is_attached_can_be_read_before_and_after_it_is_sent(tmp_path: Path):
    (tmp_path / "one.txt").write_text("first\tline\n" + "long " * 40 + "end\n\x1b[2J[/nope]")
    (tmp_path / "two.txt").write_text("second file")
    async with open_chat(ScriptedEngine(HELLO), size=(80, 30)) as stage:
        await stage.ready()
        for name in ("one.txt", "two.txt"):
            await stage.send(f"/attach {tmp_path / name}")
            await stage.sees(f"{name}, ")
        await stage.pilot.press(*"read", "up", "left", "enter")
        await stage.sees("one.txt (1 of 2)", "3 lines · 226 characters · ← → others · Esc closes", "1  first   line")
        await stage.sees("2  long long", "end", "3  ␛[2J[/nope]")
        await stage.pilot.press("right")
        await stage.sees("two.txt (2 of 2)", "1 line · 11 characters", "second file")
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.screen is stage.chat and stage.chat.prompt.pills.has_focus)
        await stage.pilot.press(" ", "x")
        await stage.until(lambda: stage.chat.prompt.text == "read x" and stage.chat.prompt.has_focus)
        await stage.pilot.press("up", "backspace", "enter", "escape", "down", "enter")
        await stage.sees("Bye.", "one.txt, 226 characters]")
        await stage.until(lambda: [len(said.attachments) for said in stage.chat.conversation.branch] == [1, 0])
        await stage.pilot.press("alt+up", "v")
        await stage.hints("Nothing is attached to this message.")
        await stage.pilot.press("alt+up")
        await stage.sees("v files")
        await stage.pilot.press("v")
        await stage.sees("1  first   line", "3 lines · 226 characters · Esc closes")
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.screen is stage.chat)
        await stage.pilot.click(stage.messages[0].query_one(Chips), offset=(8, 0))
        await stage.sees("1  first   line")


def test_a_long_text_is_wrapped_by_cells():
    assert wrapped("ab cd efghi", 4) == ["ab ", "cd ", "efgh", "i"]
    assert wrapped("abcde", 2) == ["ab", "cd", "e"]
    assert wrapped("日本語", 4) == ["日本", "語"]
    assert wrapped("", 4) == [""]
    assert wrapped("日本語", 1) == ["日", "本", "語"]


def test_words_of_any_alphabet_stay_whole():
    assert wrapped("naïve words “stay” whole", 8) == ["naïve ", "words ", "“stay” ", "whole"]
    assert wrapped("это целые слова", 10) == ["это целые ", "слова"]
    assert wrapped("a 日本語日本語", 6) == ["a 日本", "語日本", "語"], "a wide letter needs no blank"
    decomposed = "cafe\u0301 " * 8
    assert wrapped(decomposed, 10) == ["cafe\u0301 cafe\u0301 "] * 4


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_of_a_long_line_nothing_is_left_out(letter: str):
    line = (letter * 9 + " ") * 10_000
    assert "".join(wrapped(line, 76)) == line


async def test_the_end_of_a_long_line_is_shown():
    class Reader(App[None]):
        def compose(self) -> ComposeResult:
            yield Lines("long " * 20_000 + "the end")

    app = Reader()
    async with app.run_test(size=(60, 16)) as pilot:
        lines = app.query_one(Lines)
        await pilot.pause()
        lines.scroll_end(animate=False, immediate=True)
        await pilot.pause()
        assert "the end" in lines.render_line(lines.size.height - 1).text


@pytest.mark.parametrize(("text", "count"), [("a\n" * 400, 400), ("a\n" * 399 + "a", 400), ("", 1), ("\n\n", 2)])
def test_the_end_of_the_last_line_begins_no_other(text: str, count: int):
    assert len(Lines(text).lines) == count


async def test_of_a_megabyte_only_the_lines_in_sight_are_made():
    class Reader(App[None]):
        def compose(self) -> ComposeResult:
            yield Lines("word\n" * 200_000 + "the end")

    app = Reader()
    async with app.run_test(size=(60, 16)) as pilot:
        lines = app.query_one(Lines)
        await pilot.pause()
        lines.scroll_end(animate=False, immediate=True)
        await pilot.pause()
        assert lines.virtual_size.height == 200_001
        assert lines.render_line(lines.size.height - 1).text.rstrip() == "200001  the end"
