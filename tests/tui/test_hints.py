"""What the state line says for a while is there to be read: whole, however narrow the screen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from localspec import tui
from localspec.tui.control.branches import DELETE_AGAIN
from localspec.tui.control.command_search import unknown
from localspec.tui.control.state import PAUSED
from localspec.tui.control.turns import WAITING
from localspec.tui.keys.key_names import with_keys
from localspec.tui.panels.stats_line import HINT_SECONDS
from tests.support.chat_stage import HELLO, open_chat
from tests.support.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.heavy

FOLDER = Path(tui.__file__).parent
GIVING = {"give_hint", "hint", "refuse", "with_keys", "UsageError"}
WHAT_VARIES = "a word of it"
QUOTING = [
    unknown("spek"),
    "Copied. If pasting fails, the text is also in /home/someone/.local/state/localspec/copied.txt.",
    f"{PAUSED}: a round with a draft brought 1.1 tokens, but took as long as 1.3 plain ones. "
    "It is tried again by itself.",
]


def hints() -> Iterator[str]:
    """Every sentence of the package that is given as a hint, with its keys still as ids in braces."""
    for file in sorted(FOLDER.rglob("*.py")):
        module = import_module(".".join(("localspec.tui", *file.relative_to(FOLDER).with_suffix("").parts)))
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).rpartition(".")[2] in GIVING:
                yield from sentences(node.args[-1 if ast.unparse(node.func) == "with_keys" else 0], module)


def sentences(node: ast.expr, module: ModuleType) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else WHAT_VARIES for part in parts)
        case ast.Name(id=name) if isinstance(text := getattr(module, name, None), str):
            yield text
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*sentences(body, module), *sentences(orelse, module))


HINTS = (*dict.fromkeys(hints()), *QUOTING)


def test_the_hints_are_found():
    assert len(HINTS) > 40
    assert {"Nothing is loaded.", DELETE_AGAIN, WAITING, "From the next question on: a word of it"} < {*HINTS}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [(60, 16), (80, 24)])
async def test_every_hint_is_whole(size: tuple[int, int]):
    async with open_chat(ScriptedEngine(HELLO), size=size) as stage:
        await stage.ready()
        cut = []
        for text in HINTS:
            hint = with_keys(stage.chat, text)
            stage.chat.status.give_hint(hint)
            await stage.pilot.pause()
            if stage.hint != "".join(hint.split()):
                cut.append(stage.hint)
        assert not cut


async def test_the_line_is_one_again_when_the_hint_is_over():
    async with open_chat(ScriptedEngine(HELLO), size=(60, 16)) as stage:
        await stage.send("/spek")
        await stage.hints("Did you mean /spec? Type // to begin a message with a slash.")
        assert stage.chat.status.size.height == 2
        stage.chat.status.end_hint()
        await stage.until(lambda: stage.chat.status.size.height == 1)
        stage.chat.status.give_hint("path/" * 100)
        await stage.until(lambda: stage.chat.status.size.height == 3)


async def test_a_long_hint_stays_for_longer(monkeypatch: pytest.MonkeyPatch):
    lasting: list[float] = []
    monkeypatch.setattr("localspec.tui.panels.stats_line.once", lambda _, seconds, __: lasting.append(seconds))
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        lasting.clear()
        stage.chat.status.give_hint("Copied.")
        stage.chat.status._hint_timer = None
        stage.chat.status.give_hint("a word " * 20)
    assert lasting == [HINT_SECONDS, 7.0]
