"""The disk of a folder that may not exist yet."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from localspec.core.disk import free_bytes


def test_it_is_the_disk_of_the_nearest_folder_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of a relative path, too."""
    asked: list[Path] = []

    def usage(folder: Path) -> SimpleNamespace:
        asked.append(folder)
        return SimpleNamespace(free=7)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", usage)
    (tmp_path / "here").mkdir()
    for folder in (tmp_path / "here" / "hub" / "later", Path("hub"), Path("here")):
        assert free_bytes(folder) == 7
    assert asked == [tmp_path / "here", tmp_path, tmp_path / "here"]
