"""docs/architecture.md names files that are there, and its walk stays short."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FILE = re.compile(r"`((?:\w+/)+\w+\.py)`")
BARE = re.compile(r"`(\w+\.py)`")  # in the folder that was named before
MOST = 20  # files between a key and a token on the screen


def found(name: str) -> bool:
    return (ROOT / "localspec" / name).is_file() or (ROOT / name).is_file()


def test_every_file_that_the_page_names_is_there():
    named = FILE.findall(PAGE)
    assert [name for name in named if not found(name)] == []
    assert [name for name in BARE.findall(PAGE) if not any((ROOT / "localspec").rglob(name))] == []
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


def test_the_walk_names_what_is_in_its_files():
    walk = PAGE.split("## From a key")[1].split("Beside the walk")[0]
    named = re.findall(r"^\d+\. `([\w/]+\.py)`:[^`]*`(\w+)`", walk, re.MULTILINE)
    sources = {file: (ROOT / "localspec" / file).read_text(encoding="utf-8") for file, _ in named}
    assert [(file, name) for file, name in named if not re.search(rf"\b{name}\b", sources[file])] == []
    assert len(named) > 10


def test_the_chats_screen_is_composed():
    """Its parts have no base classes but for messages and records, and it has the screen that draws."""
    parts = [tree(file) for file in sorted((ROOT / "localspec" / "tui" / "control").glob("*.py"))]
    assert {base for part in parts for base in bases(part)} <= {"Message", "Protocol", "msgspec.Struct"}
    assert bases(tree(ROOT / "localspec" / "tui" / "screens" / "chat.py")) == ["Painted", "Screen[None]"]


def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def bases(module: ast.Module) -> list[str]:
    """What the classes of a module inherit from."""
    return [ast.unparse(base) for node in ast.walk(module) if isinstance(node, ast.ClassDef) for base in node.bases]


@pytest.mark.parametrize(
    ("thing", "file", "name"),
    [
        ("slash command", "tui/control/commands.py", "COMMANDS"),
        ("key", "tui/keys/chat_keys.py", "CHAT_KEYS"),
        ("drafter", "engine/drafters/table.py", "DRAFTERS"),
        ("weight format", "core/weight_formats.py", "FORMATS"),
        ("weight format", "loading/kernels.py", "KERNELS"),
        ("int8 and int4", "engine/cpu/pack.py", "quantise4"),
        ("Roll back", "engine/session.py", "roll_back"),
        ("plan", "loading/plan.py", "Plan"),
        ("model family", "engine/arch.py", "Arch"),
        ("event", "core/events.py", "AnyEvent"),
    ],
)
def test_where_a_thing_goes_is_a_line_of_the_page_and_what_is_looked_for_is_in_that_file(thing, file, name):
    lines = PAGE.split("## Where things go")[1].split("\n- ")
    (line,) = [line for line in lines if re.match(rf"\*\*(A |An |The )?{thing}\*\*", line)]
    assert f"`{file}`" in line
    source = (ROOT / "localspec" / file).read_text(encoding="utf-8")
    assert re.search(rf"^ *(def |class )?{name}\b", source, re.MULTILINE)
