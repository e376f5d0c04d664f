"""Requests: what is no text is refused where a request is made, before any engine hears of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import localspec
from localspec.core.errors import UsageError
from localspec.core.requests import SAMPLING_FIELDS, GenerateRequest, Message, whole

HALF = "hi \ud800"  # of a character that UTF-16 writes in two


@pytest.mark.parametrize(
    "given", [{"prompt": HALF}, {"messages": (Message("user", HALF),)}, {"prompt": "hi", "stop": ("end", HALF)}]
)
def test_half_a_character_is_refused(given: dict[str, Any]):
    with pytest.raises(UsageError, match="not valid Unicode"):
        GenerateRequest(**given)


def test_every_whole_character_is_text():
    everything = "a\u0000\u00e9\u2028\uffff\U0001f980"
    assert GenerateRequest(prompt=everything).prompt == everything


def test_what_is_typed_loses_no_whole_character():
    assert whole(f"{HALF}\U0001f980") == "hi \ufffd\U0001f980"
    assert whole("\U0001f980") == "\U0001f980"


def test_the_sampling_options_are_listed_once():
    """Flags, files, forms, the server's bodies and other programs' words are made from SamplingOptions. A list without
    one of them is a list, too; a text may hold it."""
    root = Path(localspec.__file__).parent
    found = {file: SAMPLING_FIELDS.keys() & names(ast.parse(file.read_text("utf-8"))) for file in root.rglob("*.py")}
    lists = [str(file.relative_to(root)) for file, named in found.items() if len(named) >= len(SAMPLING_FIELDS) - 1]
    assert lists == ["core/requests.py"]


def names(module: ast.Module) -> set[str]:
    """Fields that a module defines, keywords that it passes and words of strings in it."""
    fields = (node.target for node in ast.walk(module) if isinstance(node, ast.AnnAssign))
    texts = (node.value for node in ast.walk(module) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return (
        {field.id for field in fields if isinstance(field, ast.Name)}
        | {node.arg for node in ast.walk(module) if isinstance(node, ast.keyword) and node.arg}
        | {word for text in texts for word in re.findall(r"\w+", text)}
    )
