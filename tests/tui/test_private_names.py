"""What the chat uses of Textual beyond its public interface is in two folders and on one page, which says what an
update of Textual may break."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import textual

ROOT = Path(__file__).parents[2]
CHAT = ROOT / "localspec" / "tui"
PAGE = ROOT / "docs" / "textual.md"
FOLDERS = ("markdown/", "terminal/")
PRIVATE = re.compile(r"_[a-z]\w*")


CORE = ("app", "dom", "driver", "message_pump", "screen", "widget", "widgets/_text_area", "_compositor")
"""Where names are of classes that ours derive from."""


@cache
def textuals(pattern: str) -> frozenset[str]:
    """The private methods and attributes of the classes in these files of Textual."""
    sources = (file.read_text(encoding="utf-8") for file in Path(textual.__file__).parent.glob(pattern))
    return frozenset(name for source in sources for name in re.findall(r"(?:def |self\.)(_[a-z]\w*)", source))


@cache
def inherited() -> frozenset[str]:
    return frozenset[str]().union(*(textuals(f"{name}.py") for name in CORE))


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def given(tree: ast.Module) -> set[str]:
    """The methods and attributes that the file's classes have of their own, or in place of inherited ones."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(body=body):
                found |= {one.name for one in body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
                found |= {
                    one.target.id for one in body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
                }
                for one in body:
                    if isinstance(one, ast.Assign):
                        found |= {target.id for target in one.targets if isinstance(target, ast.Name)}
            case ast.Attribute(value=value, attr=name, ctx=ast.Store()) if is_self(value):
                found.add(name)
    return found


def private_names(source: str) -> set[str]:
    """Those of Textual's that it imports, reads, calls, watches or overrides."""
    tree = ast.parse(source)
    ours = given(tree)
    found = {name.removeprefix("watch_") for name in ours} & inherited()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "textual":
                found |= {part for part in (*module.split("."), *(one.name for one in names)) if part.startswith("_")}
            case ast.Attribute(value=value, attr=name) if PRIVATE.fullmatch(name) and name in textuals("**/*.py"):
                found |= set() if is_self(value) and name in ours else {name}
    return {name for name in found if PRIVATE.fullmatch(name)}


FILES = {str(file.relative_to(CHAT)): private_names(file.read_text(encoding="utf-8")) for file in CHAT.rglob("*.py")}
TOUCHING = sorted(file for file, names in FILES.items() if names)


def test_textuals_private_names_are_touched_in_two_folders_only():
    assert {file: sorted(FILES[file]) for file in TOUCHING if not file.startswith(FOLDERS)} == {}


@pytest.mark.parametrize("file", TOUCHING)
def test_a_file_that_touches_textuals_private_names_is_on_the_page_with_them(file: str):
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if f"`{file}`" in line]
    assert rows, f"docs/textual.md does not name {file}, which uses {sorted(FILES[file])}"
    assert [name for name in sorted(FILES[file]) if not any(f"`{name}`" in row for row in rows)] == []


def test_a_file_that_the_page_names_is_there():
    named = re.findall(r"^\|[^|]*\| `([\w/]+\.py)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(TOUCHING) <= set(named)
    assert [name for name in named if name not in FILES] == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from textual._compositor import Compositor", {"_compositor"}),
        ("from textual.widgets import _markdown", {"_markdown"}),
        ("class A(Widget):\n def go(self): self.screen._compositor", {"_compositor"}),
        ("class A(Widget):\n def go(self): return self._anchored", {"_anchored"}),
        ("class A(Widget):\n def _size_updated(self): ...", {"_size_updated"}),
        ("class A(Screen):\n def __init__(self): self._compositor = 1", {"_compositor"}),
        ("class A(Screen):\n def watch__selecting(self): ...", {"_selecting"}),
        ("class A:\n _own = 1\n def go(self): return self._own", set()),
        ("class A(Widget):\n def watch_value(self): self.value.__doc__", set()),
    ],
)
def test_every_way_to_touch_one_is_seen(source: str, names: set[str]):
    assert private_names(source) == names
