"""What is printed cannot drive a terminal, and JSON loses nothing by it."""

from __future__ import annotations

import io
import json
import sys

import pytest

from localspec.output import as_json, safe_json
from localspec.sanitize import TABLE, clean

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
