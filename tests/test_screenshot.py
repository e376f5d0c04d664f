"""Pictures of the screen, which the palette makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chat_stage import HELLO, open_chat
from tests.scripted_engine import ScriptedEngine


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
