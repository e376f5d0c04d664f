"""What is printed cannot drive a terminal, and JSON loses nothing by it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from localspec.cli.io import as_json, print_error, print_note, print_notice, safe_json
from localspec.core.errors import UsageError
from localspec.core.events import Notice
from localspec.core.sanitize import TABLE, clean
from localspec.core.whole_file import save

EVERY = " ".join(map(chr, TABLE)) + " naïve 今 👩‍👩‍👧"


def test_json_has_no_code_point_that_drives_a_terminal_and_every_one_in_it():
    line = as_json({"text": EVERY})
    assert clean(line) == line
    assert "\n" not in line
    assert json.loads(line) == {"text": EVERY}


def test_json_keeps_its_layout():
    pretty = json.dumps({"a": ["\x7f", "今"]}, ensure_ascii=False, indent=2)
    assert safe_json(pretty) == pretty.replace("\x7f", "\\u007f")


def test_json_is_ascii_where_stdout_carries_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    line = as_json({"text": EVERY})
    assert line.isascii()
    assert json.loads(line) == {"text": EVERY}


@pytest.mark.parametrize("is_terminal", [True, False])
def test_errors_and_warnings_break_between_words_on_a_terminal_and_are_one_line_in_a_pipe(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    said = f"The model {'/a-long-path' * 9} is not on disk. Fetch it first, and then try again: localspec pull it"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    monkeypatch.setenv("COLUMNS", "40")
    print_error(said)
    print_notice(Notice("warning", "some", said))
    for level, told in zip(("error", "warning"), capsys.readouterr().err.split("\nwarning: "), strict=True):
        lines = told.removeprefix("error: ").splitlines()
        assert " ".join(lines) == said, f"{level}: no word is cut"
        assert (len(lines) > 1) is is_terminal
        assert all(len(line) <= 40 for line in lines if "/a-long-path" not in line)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_note_is_broken_between_words_on_a_terminal_and_its_command_never(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    monkeypatch.setenv("COLUMNS", "80")
    note = "facebook/layerskip-llama2-7B is not on this machine. This is what a pull would fetch:"
    print_note(note)
    print_note(f"A table\n  {'a  b ' * 12}\n{note} localspec pull facebook/layerskip-llama2-7B")
    whole = f"{note}\nA table\n  {'a  b ' * 12}\n{note} localspec pull facebook/layerskip-llama2-7B\n"
    broken = note.replace(" fetch:", "\n  fetch:")
    in_lines = f"{broken}\nA table\n  {'a  b ' * 12}\n{broken}\n  localspec pull facebook/layerskip-llama2-7B\n"
    assert capsys.readouterr().err == (in_lines if is_terminal else whole)


def test_a_mistyped_folder_is_not_made(tmp_path: Path):
    with pytest.raises(UsageError, match="There is no folder") as refused:
        save(tmp_path / "typo" / "chat.md", "text")
    assert "Create it" in refused.value.hint
    assert list(tmp_path.iterdir()) == []
    save(tmp_path / "chat.md", "text")
    assert (tmp_path / "chat.md").read_text() == "text"
