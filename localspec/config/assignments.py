"""Assignments as they are typed: `temperature=0.7 stop="###"`. Knows no option.

In quotation marks a value may have blanks, and \\n, \\t, \\" and \\\\.
"""

from __future__ import annotations

import re

from localspec.core.errors import UsageError

QUOTED = r'"(?:[^"\\]|\\.)*"'
WORD = re.compile(rf'(?:{QUOTED}|[^\s"])+')
ESCAPES = {"n": "\n", "t": "\t"}
MARKS = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


def words(typed: str) -> list[str]:
    """The words, with their quotation marks; UsageError where one is not closed."""
    if WORD.sub("", typed).strip():
        raise UsageError(f"A quotation mark is not closed: {typed[:40]}")
    return WORD.findall(typed)


def plain(word: str) -> str:
    """A word without its quotation marks."""
    return re.sub(QUOTED, lambda found: re.sub(r"\\(.)", unescaped, found[0][1:-1]), word)


def unescaped(mark: re.Match[str]) -> str:
    return ESCAPES.get(mark[1], mark[1])


def quoted(text: str) -> str:
    """A text as it is typed: `plain` gives it back."""
    return f'"{"".join(MARKS.get(letter, letter) for letter in text)}"'


def assigned(word: str) -> tuple[str, str | None]:
    """The name and the value of `name=value`; None without `=`."""
    name, equals, value = word.partition("=")
    return name, plain(value) if equals else None
