"""Words that users and newcomers read twice stand neither in the pages nor in the program's sentences and source.

The lists have only words that have no honest use here: `told` and `nobody` are fine English, but in this repository
they stood for callers, flags and files. A word that is retired later is added here, and nowhere else.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.help_pages import ROOT, without_help

RETIRED = {  # a pattern, and what to say instead
    r"\btold\b|\buntold\b": "say who does what: shown, passed, given, left out",
    r"\bsaid\b": "say what it is: written, shown, reported",
    r"\bsomebody\b|\banybody\b|\bnobody\b": "name the user, the caller or the file",
    r"\bcomes? and goe?s?\b": "are offloaded",
    r"\blast way out\b": "the last fallback",
    r"\bin vain\b": "rejected",
    r"\bways? of sampling\b": "a sampling preset",
    r"\bnot looked at\b": "unused",
    r"\bobey(s|ed|ing)?\b": "applies, runs",
    r"\bwished\b": "asked for, chosen",
    r"\badmitted\b": "passed the self-check",
    r"\bwords (a|the) (chat|conversation)\b": "formats the conversation",
    r"pip install (--upgrade|-U) localspec": "UPDATE of core/errors.py: localspec is on no registry",
    r"\bonce more, beside it\b": "regenerate, keeping the old one",
}
NAMES = {"told", "somebody", "anybody", "nobody", "obey", "obeys", "obeying", "wished", "admitted"}
NAMES |= {"said", "unsaid", "untold"}
NAMES |= {"wish", "wishes", "room", "rooms", "place", "places"}  # fine in a sentence, vague as a name
BEGINNING = """
about above across after against along also always among and another around as at because before behind below beneath
beside besides between beyond but by down during everybody everyone for from if in inside into less like more nobody
nor not of on once or ours out outside over per since so somebody something than that then these those though through
throughout to too toward towards under unless until up upon upwards when whence where whereas wherever while whilst
whoever whose with within without yet
"""  # a docstring begins with its subject or a verb, never with one of these
STORED = re.compile(r"^untold$|\buntold (AS|INTEGER)\b|CHECK\(untold\b")  # a column of the history and its JSON key
ARCHIVE = ROOT / "docs" / "measurements-archive.md"  # sections stay as they were written on their day
READ_FIRST = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "DECISIONS.md")
PAGES = sorted({ROOT / name for name in READ_FIRST} | set(ROOT.glob("docs/*.md")))
PACKAGE = sorted((ROOT / "localspec").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
PROGRAMS = sorted(file for folder in ("localspec", "benchmarks", "training") for file in (ROOT / folder).rglob("*.py"))
PLANTED = '''
def tellNobodyTwice(told_once):
    """Of what was said."""
    raise ValueError(f"Nobody can {told_once} be asked.")  # layers come and go
'''


def retired(text: str) -> list[str]:
    return [
        f"{found[0]!r}: {better}"
        for word, better in RETIRED.items()
        for found in re.finditer(word, STORED.sub("", " ".join(text.split())), re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if page != ARCHIVE], ids=lambda page: page.name)
def test_a_page_has_no_retired_word(page: Path):
    """Help texts in docs/cli.md are the program's, and held below."""
    assert retired(without_help(page.read_text(encoding="utf-8"))) == []


def test_no_sentence_and_no_name_of_the_program_has_a_retired_word():
    """Strings, docstrings, comments and identifiers."""
    found = {name(module): words for module in PACKAGE if (words := faults(module.read_text(encoding="utf-8")))}
    assert found == {}


def test_no_sentence_of_a_benchmark_has_a_retired_word():
    """The names and docstrings inside are for who works on it; a module's docstring is its --help."""
    found = {name(module): words for module in BENCHMARKS if (words := shown_faults(module.read_text("utf-8")))}
    assert found == {}


def test_every_docstring_begins_with_its_subject_or_a_verb():
    found = {name(module): lines for module in PROGRAMS if (lines := beginnings(module.read_text(encoding="utf-8")))}
    assert found == {}


def test_no_two_classes_have_one_name():
    """Public ones; messages of a widget stand in its class, and are named with it: Sidebar.Chosen."""
    names = Counter(
        node.name
        for module in PACKAGE
        for node in ast.parse(module.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1 and not name.startswith("_")] == []


def test_the_checks_find_what_they_are_for():
    assert [fault.partition(":")[0] for fault in faults(PLANTED)] == [
        "'said'",
        "'Nobody'",
        "'come and go'",
        "tellNobodyTwice",
        "told_once",
    ]
    assert shown_faults(PLANTED) == [fault for fault in faults(PLANTED) if fault.startswith("'Nobody'")]
    assert beginnings(PLANTED) == ["tellNobodyTwice: Of what was said."]
    assert beginnings('"""Nothing of it is here."""') == ["module: Nothing of it is here."]
    assert beginnings('"""Nothing is here."""') == []
    assert [len(retired(text)) for text in ("untold", "untold INTEGER", "an untold turn")] == [0, 0, 1]
    assert retired("layers that\n    come and go") == ["'come and go': are offloaded"]


def name(module: Path) -> str:
    return str(module.relative_to(ROOT))


def faults(source: str) -> list[str]:
    texts = [*strings(nodes(source)), *comments(source)]
    names = sorted(one for one in set(identifiers(nodes(source))) if NAMES & set(parts(one)))
    return [fault for text in texts for fault in retired(text)] + [f"{one}: a retired word in a name" for one in names]


def shown_faults(source: str) -> list[str]:
    """Those of strings that may be printed: all but the docstrings of functions and classes."""
    definitions = [
        node for node in nodes(source) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    inner = {id(node.body[0].value) for node in definitions if isinstance(node.body[0], ast.Expr)}
    shown = [node for node in nodes(source) if id(node) not in inner]
    return [fault for text in strings(shown) for fault in retired(text)]


@cache
def nodes(source: str) -> list[ast.AST]:
    """All that is parsed from it, in the order of ast.walk."""
    return list(ast.walk(ast.parse(source)))


def strings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """String constants: docstrings, messages, and the fixed pieces of f-strings."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def comments(source: str) -> Iterator[str]:
    """Comments, those on consecutive lines as one text."""
    text = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text += token.string.lstrip("#")
        elif token.type != tokenize.NL and text:
            yield text
            text = ""


def identifiers(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names that the module defines or uses: each syntax node keeps them in fields that are plain strings."""
    for node in nodes:
        if not isinstance(node, ast.Constant):
            yield from (value for _, value in ast.iter_fields(node) if isinstance(value, str))


def parts(identifier: str) -> list[str]:
    """The words of snake_case and CamelCase, in small letters."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)]


def beginnings(source: str) -> list[str]:
    """Docstrings that begin with another word than their subject or a verb."""
    return [
        f"{getattr(node, 'name', 'module')}: {text.splitlines()[0]}"
        for node in nodes(source)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node))
        and (first := re.match(r"[A-Za-z']+", text))
        and (first[0].lower() in BEGINNING.split() or text.startswith("Nothing of it"))
    ]
