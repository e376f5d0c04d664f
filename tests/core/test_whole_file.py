"""A file is the old one or the new one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from localspec.core.whole_file import write_whole


def test_a_file_is_made_with_its_folder_and_replaced(tmp_path: Path):
    file = tmp_path / "new" / "state.json"
    for content in (b"one", b"two"):
        write_whole(file, content)
        assert file.read_bytes() == content
    assert os.listdir(file.parent) == ["state.json"]


@pytest.mark.parametrize("function", ["pathlib.Path.write_bytes", "os.replace"])
def test_a_failure_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "state.json"
    write_whole(file, b"old")
    monkeypatch.setattr(function, full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state.json"]
