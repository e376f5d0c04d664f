"""Words that users and newcomers read twice stand neither in the pages nor in what the program prints.

The list has only words that have no honest use here: `told` and `nobody` are fine English, but in this repository they
stood for callers, flags and files. A word that is retired later is added here, and nowhere else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.help_pages import ROOT, without_help

RETIRED = {  # a pattern, and what to say instead
    r"\btold\b": "say who does what: shown, passed, given",
    r"\bsomebody\b|\banybody\b|\bnobody\b": "name the user, the caller or the file",
    r"\bcomes? and goe?s?\b": "are offloaded",
    r"\blast way out\b": "the last fallback",
    r"\bin vain\b": "rejected",
    r"\bways? of sampling\b": "a sampling preset",
    r"\bnot looked at\b": "unused",
    r"\bwords (a|the) (chat|conversation)\b": "formats the conversation",
    r"\bonce more, beside it\b": "regenerate, keeping the old one",
}
ARCHIVE = ROOT / "docs" / "measurements-archive.md"  # sections stay as they were written on their day
PAGES = sorted({ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")} | set(ROOT.glob("docs/*.md")))
NOT_YET = (  # the program's sentences that wait for issue 19's sweep of words; the list may only get shorter
    "nobody can know its answer",
    "only floats come and go",
    "# guide, the model that comes with localspec",
)


def retired(text: str) -> list[str]:
    return [
        f"{found[0]!r}: {better}"
        for word, better in RETIRED.items()
        for found in re.finditer(word, text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if page != ARCHIVE], ids=lambda page: page.name)
def test_a_page_has_no_retired_word(page: Path):
    """Help texts in docs/cli.md are the program's, and held below."""
    assert retired(without_help(page.read_text(encoding="utf-8"))) == []


def test_no_sentence_of_the_program_has_a_retired_word():
    found = {
        f"{module.relative_to(ROOT)}: {text}": words
        for module in sorted((ROOT / "localspec").rglob("*.py"))
        for text in sentences(ast.parse(module.read_text(encoding="utf-8")))
        if (words := retired(text)) and not any(known in text for known in NOT_YET)
    }
    assert found == {}


def sentences(tree: ast.Module) -> Iterator[str]:
    """String constants of more than one word. Docstrings are for who reads the source: a string that is a statement of
    its own is never printed."""
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in silent
        ):
            yield node.value
