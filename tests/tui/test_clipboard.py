"""What is copied is somewhere afterwards: on the desktop's clipboard if there is one, else in a file that is named."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from localspec.core import paths
from localspec.tui.terminal import clipboard
from tests.support.chat_stage import HELLO, kept_chat, open_chat
from tests.support.scripted_engine import ScriptedEngine

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(os.name == "nt", reason="scripts stand in for the programs")]

SAID = "Hello there, world. Bye."


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs, and nothing else on the path; what one is given is in a file of its name beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, *, fails: bool = False) -> Path:
    taken = folder / f"{name}.taken"
    lines = [f"#!{sys.executable}", "import sys", f"open({str(taken)!r}, 'wb').write(sys.stdin.buffer.read())"]
    (folder / name).write_text("\n".join([*lines, f"sys.exit({int(fails)})"]))
    (folder / name).chmod(0o700)
    return taken


def test_the_desktop_s_own_program_takes_it(desktop: Path, monkeypatch: pytest.MonkeyPatch):
    assert not clipboard.put("nobody")
    for variable, name in [("DISPLAY", "xsel"), ("DISPLAY", "xclip"), ("WAYLAND_DISPLAY", "wl-copy"), ("TMUX", "tmux")]:
        taken = program(desktop, name)
        assert not taken.exists()
        monkeypatch.setenv(variable, "x")
        assert clipboard.put(f"für {name} 😀")
        assert taken.read_text() == f"für {name} 😀"


def test_one_that_fails_is_followed_by_the_next(desktop: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMUX", "x")
    program(desktop, "tmux", fails=True)
    assert not clipboard.put("text")
    monkeypatch.setenv("DISPLAY", "x")
    taken = program(desktop, "xsel")
    assert clipboard.put("text")
    assert taken.read_text() == "text"


@pytest.mark.parametrize("platform", ["darwin", "linux"])
def test_a_desktop_at_the_far_end_of_ssh_is_nobody_s(desktop: Path, platform: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", platform)
    taken = program(desktop, "pbcopy")
    assert not clipboard.put("text")
    monkeypatch.delenv("SSH_CONNECTION")
    assert clipboard.put("text") == taken.exists() == (platform == "darwin")


@pytest.mark.usefixtures("desktop")
async def test_without_a_desktop_it_is_in_a_file_that_is_named():
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.asks("hi", "Bye.", "idle")
        await stage.send("/copy")
        await stage.hints(f"Copied. If pasting fails, the text is also in {paths.copied_file()}.")
        assert paths.copied_file().read_text() == stage.app.clipboard == SAID
        await stage.send("/copy all")
        await stage.until(lambda: paths.copied_file().read_text().startswith("You:\nhi"))


@pytest.mark.usefixtures("desktop")
async def test_where_no_chat_is_kept_no_copy_is():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.asks("hi", "Bye.", "idle")
        await stage.asks("/copy", "Copied.")
        await stage.until(lambda: not any(each.group == "clipboard" for each in stage.app.workers))
        assert stage.app.clipboard == SAID
        assert not paths.copied_file().exists()


async def test_with_a_desktop_there_is_no_file(desktop: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DISPLAY", "x")
    taken = program(desktop, "xclip")
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.asks("hi", "Bye.", "idle")
        await stage.send("/copy")
        await stage.until(taken.exists)
        await stage.until(lambda: not any(each.group == "clipboard" for each in stage.app.workers))
        await stage.sees("Copied.")
        assert taken.read_text() == SAID
        assert not paths.copied_file().exists()
