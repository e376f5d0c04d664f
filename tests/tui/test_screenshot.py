"""Pictures of the screen, which the palette makes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from localspec.core import paths
from localspec.core.sanitize import clean
from tests.support.chat_stage import HELLO, open_chat
from tests.support.scripted_engine import ScriptedEngine

NO_FOLDER, GONE = os.strerror(errno.ENOTDIR), os.strerror(errno.ENOENT)


@pytest.mark.parametrize("downloads", [True, False])
async def test_a_picture_is_kept_whether_or_not_there_is_a_folder_of_downloads(
    downloads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    place = tmp_path / ("downloads" if downloads else "here")
    place.mkdir()
    (tmp_path / "here").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("platformdirs.user_downloads_path", lambda: tmp_path / "downloads")
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        stage.app.deliver_screenshot()
        await stage.until(lambda: any(file.stat().st_size for file in place.glob("localspec-*.svg")))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["[/nope]", "[work] notes", "a\x1b[2Jb"])
async def test_where_a_picture_is_kept_is_told_as_it_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = tmp_path / name
    place.mkdir(parents=True)
    monkeypatch.setattr("platformdirs.user_downloads_path", lambda: place)
    async with open_chat(ScriptedEngine(HELLO), size=(250, 24)) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+p", *"screenshot", "down", "enter")
        await stage.sees(clean(f"The screenshot is in {place}/localspec-"))
        (kept,) = place.iterdir()
        await stage.sees(kept.name)
        assert kept.read_text(encoding="utf-8").rstrip().endswith("</svg>")


@pytest.mark.slow
async def test_why_a_picture_is_not_kept_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(paths, "pictures_dir", lambda: tmp_path / "file" / "[/nope]")
    async with open_chat(ScriptedEngine(HELLO), size=(250, 24)) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+p", *"screenshot", "down", "enter")
        await stage.sees(
            f"! The screenshot '{tmp_path}/file/[/nope]/localspec-", f".svg' cannot be written ({NO_FOLDER})."
        )


@pytest.mark.slow
async def test_a_picture_where_the_present_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "here").mkdir()
    monkeypatch.setattr("platformdirs.user_downloads_path", lambda: tmp_path / "none")
    async with open_chat(ScriptedEngine(HELLO), size=(250, 24)) as stage:
        await stage.ready()
        monkeypatch.chdir(tmp_path / "here")
        (tmp_path / "here").rmdir()
        await stage.pilot.press("ctrl+p", *"screenshot", "down", "enter")
        await stage.sees("! The screenshot 'localspec-", f".svg' cannot be written ({GONE}).")
