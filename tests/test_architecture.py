"""docs/architecture.md names files that are there, and its walk stays short."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FILE = re.compile(r"`((?:\w+/)+\w+\.py)`")
MOST = 20  # files between a key and a token on the screen


def found(name: str) -> bool:
    return (ROOT / "localspec" / name).is_file() or (ROOT / name).is_file()


def test_every_file_that_the_page_names_is_there():
    named = FILE.findall(PAGE)
    assert [name for name in named if not found(name)] == []
    assert len(named) > MOST


def test_every_folder_that_the_page_names_is_there():
    folders = re.findall(r"`((?:\w+/)+)`", PAGE)
    inside = [ROOT / "localspec", ROOT / "localspec" / "tui"]
    assert [name for name in folders if not any((base / name).is_dir() for base in (ROOT, *inside))] == []


def test_from_a_key_to_the_screen_a_reader_opens_few_files():
    walk = PAGE.split("## From a key")[1].split("Beside the walk")[0]
    steps = re.findall(r"^\d+\. `([\w/]+\.py)`", walk, re.MULTILINE)
    assert len(steps) > 10
    assert len(set(FILE.findall(walk))) <= MOST
