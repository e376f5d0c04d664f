"""Paths are completed as they are typed, and no folder can hold the screen; what only looks like a file is asked
about."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from localspec.tui.chat import file_names
from localspec.tui.chat.attachments import doubtful
from localspec.tui.chat.daemon import in_daemon
from localspec.tui.chat.file_names import MOST_OFFERED, Begun, FolderNames, begun, steps, written
from localspec.tui.panels import completion
from localspec.tui.panels.completion import typed_path
from localspec.tui.screens.dialog import Dialog
from tests.support.chat_stage import HELLO, Stage, open_chat
from tests.support.scripted_engine import ScriptedEngine


def read(path: Path | str) -> FolderNames:
    folder = FolderNames(str(path))
    folder.read()
    return folder


def names(folder: FolderNames, typed: str) -> list[str]:
    return [one.name for one in folder.matching(typed)]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("docs", "my drafts", ".git"):
        (tmp_path / folder).mkdir()
    for file in ("README.md", "readers.txt", "a dread.txt", ".hidden", "docs/chat.md", "my drafts/one.md"):
        (tmp_path / file).write_text(f"this is {file}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("before", "path"),
    [
        ("see @", ""),
        ("see @docs/ch", "docs/ch"),
        ('see @"my dr', "my dr"),
        ('@"', ""),
        ("me@home.org", None),
        ("see @docs/ch and", None),
        ('see @"my dr" ', None),
        ("see", None),
    ],
)
def test_a_path_begins_with_an_at_at_a_words_beginning(before: str, path: str | None):
    found = begun(before, argument=False)
    assert (found.path if found else None) == path


def test_of_the_commands_only_attach_takes_a_path():
    assert typed_path("/attach my dr", "/attach my dr") == Begun("my dr", mention=False)
    for text in ("/attach", "/system @docs", "/nope x", "//attach x"):
        assert typed_path(text, text) is None


def test_folders_come_first_among_equals_and_what_begins_with_it_before_what_contains_it(tree: Path):
    folder = read(tree)
    assert names(folder, "") == ["docs", "my drafts", "a dread.txt", "readers.txt", "README.md"]
    assert names(folder, "READ") == ["readers.txt", "README.md", "a dread.txt"]
    assert names(folder, "rdm") == ["README.md"]
    assert names(folder, "nope") == []
    assert names(folder, ".") == [".git", ".hidden", "a dread.txt", "readers.txt", "README.md"]


def test_a_link_to_a_folder_is_a_folder_and_the_home_is_understood(tree: Path, monkeypatch: pytest.MonkeyPatch):
    (tree / "docs link").symlink_to("docs")
    monkeypatch.setenv("HOME", str(tree))
    folder = read("~/")
    assert [(one.name, one.is_folder) for one in folder.matching("docs")] == [("docs", True), ("docs link", True)]
    assert [one.name for one in steps(Begun("~", mention=True))] == ["~"]
    assert [written(begun, one) for begun in [Begun("x/..", mention=True)] for one in steps(begun)] == ["x/../"]
    assert names(read(tree / "README.md"), "") == names(read("no such folder"), "") == []


def test_blanks_stand_in_quotes_that_stay_open_in_a_folder_and_no_key_types_a_control_byte(tree: Path):
    for name in ("\x1b]0;x\x07", "two\nlines", 'quo"te d', "rtl\u202egpj.exe"):
        (tree / name).write_text("x")
    (tree / os.fsdecode(b"caf\xe9")).write_text("x")
    found = {one.name: one for one in read(tree).matching("")}
    assert set(found) == {"docs", "my drafts", "a dread.txt", "README.md", "readers.txt"}
    typed = Begun("", mention=True)
    assert written(typed, found["my drafts"]) == '"my drafts/'
    assert written(typed, found["a dread.txt"]) == '"a dread.txt" '
    assert written(typed, found["docs"]) == "docs/"
    assert written(Begun("", mention=False), found["README.md"]) == "README.md"


def test_of_a_large_folder_as_much_is_read_as_is_allowed_and_few_are_offered(tmp_path: Path):
    for number in range(MOST_OFFERED + 20):
        (tmp_path / f"file{number}").touch()
    folder = FolderNames(str(tmp_path))
    folder.read(most=MOST_OFFERED + 10)
    assert len(folder.names) == MOST_OFFERED + 10
    assert len(folder.matching("f")) == MOST_OFFERED
    late = FolderNames(str(tmp_path))
    late.read(seconds=-1)
    assert len(late.names) == 1


async def test_what_a_thread_finds_or_fails_with_arrives():
    assert await in_daemon(lambda: 3) == 3
    with pytest.raises(OSError, match="gone"):
        await in_daemon(lambda: (_ for _ in ()).throw(OSError("gone")))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@nofile.txt what is it", ["nofile.txt"]),
        ("what is in @src/no, and @~/x?", ["src/no", "~/x"]),
        ('see @"my notes"', ["my notes"]),
        ("see @Makefile", []),
        ("ask @nobody. or me@home.org, @someone", []),
        ("@app.get('/x')\ndef view(): ...", []),
        ("why?\n@pytest.fixture\ndef x(): ...", []),
        ("    @app.task\n    async def x(): ...", []),
        ("@Nullable\npublic int x;", []),
        ("a @3.14 b @2.0", []),
        ("@https://x.org/a", []),
    ],
)
def test_what_looks_like_a_file_is_doubted_and_what_is_plainly_none_is_not(text: str, names: list[str]):
    assert [*doubtful(text)] == names


# --- in the chat


def popup(stage: Stage) -> list[str]:
    shown = stage.chat.prompt.completion
    return str(shown.content).splitlines() if shown.display else []


@pytest.mark.heavy
@pytest.mark.usefixtures("tree")
async def test_a_path_is_completed_folder_by_folder_and_attached():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        prompt = stage.chat.prompt
        await stage.ready()
        await stage.pilot.press(*"see ", "@")
        await stage.until(lambda: [row.strip() for row in popup(stage)][:2] == ["docs/", "my drafts/"])
        await stage.pilot.press(*"my", "tab")
        assert prompt.text == 'see @"my drafts/'
        await stage.until(lambda: [row.strip() for row in popup(stage)] == ["my drafts/one.md"])
        await stage.pilot.press("tab")
        assert prompt.text == 'see @"my drafts/one.md" '
        await stage.until(lambda: [one.text for one in prompt.pills.attachments] == ["this is my drafts/one.md"])
        await stage.pilot.press(*"x @rea")
        await stage.until(lambda: "› readers.txt" in popup(stage)[0])
        await stage.pilot.press("down", "enter")
        await stage.until(lambda: len(prompt.pills.attachments) == 2)
        assert prompt.text.endswith("x @README.md ")
        await stage.pilot.press("ctrl+c", *"/attach rea")
        await stage.until(lambda: "› readers.txt" in popup(stage)[1])
        await stage.pilot.press("enter")
        await stage.until(lambda: [one.path for one in prompt.pills.attachments] == ["readers.txt"])
        assert not prompt.text
        assert not stage.engine.requests


@pytest.mark.heavy
async def test_tab_with_a_text_typed_never_leaves_the_prompt():
    async with open_chat(ScriptedEngine(HELLO), size=(130, 30)) as stage:
        await stage.ready()
        await stage.pilot.press(*"half @nope", "tab", "tab", "shift+tab", "p", "r")
        await stage.until(lambda: stage.chat.prompt.text == "half @nopepr")
        assert stage.chat.prompt.has_focus


@pytest.mark.heavy
async def test_a_message_that_names_no_file_is_sent_when_the_user_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    engine = ScriptedEngine(HELLO)
    async with open_chat(engine) as stage:
        await stage.ready()
        await stage.send("@nofile.txt or @docs/ what is it")
        await stage.sees("Send it as text?", "There is no file nofile.txt.", "docs/ is a folder.")
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.screen is stage.chat)
        assert stage.chat.prompt.text == "@nofile.txt or @docs/ what is it"
        assert not engine.requests
        await stage.pilot.press("enter")
        await stage.until(lambda: isinstance(stage.app.screen, Dialog))
        stage.app.screen._answers_from = 0.0  # type: ignore[attr-defined]
        await stage.pilot.press("enter")
        await stage.sees("Bye.", "@nofile.txt or @docs/ what is it")
        assert len(engine.requests) == 1


@pytest.mark.heavy
async def test_a_folder_that_never_answers_holds_neither_keys_nor_sending(monkeypatch: pytest.MonkeyPatch):
    gate = threading.Event()

    def dead(self: FolderNames) -> None:
        self.names.append("slow.txt")
        gate.wait()

    monkeypatch.setattr(file_names.FolderNames, "read", dead)
    monkeypatch.setattr(completion, "PATIENCE_SECONDS", 0.05)
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.pilot.press(*"see @s")
        await stage.until(lambda: popup(stage) and "slow.txt" in popup(stage)[0])
        await stage.pilot.press("escape", "space", "o", "k", "enter")
        await stage.sees("see @s ok", "Bye.")
        await asyncio.sleep(0)
    gate.set()
