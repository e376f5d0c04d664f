"""What strangers wrote, on its way to a terminal, a pipe or a file: text is cleaned for a terminal, JSON is escaped.

Knows streams, and nothing about what is printed.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any  # Any: JSON

from localspec.cli.sentence import print_sentence
from localspec.core.events import AnyEvent, Notice
from localspec.core.sanitize import TABLE, clean
from localspec.runtime.stats import to_dict

ESCAPES = {code: json.dumps(chr(code))[1:-1] for code in TABLE if chr(code) not in "\t\n"} | {0x7F: "\\u007f"}
NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def say(text: str) -> None:
    print(clean(text))


def hand_over(text: str) -> None:
    """As it was written, line breaks and all, for whatever reads the pipe; clean for a terminal."""
    print(clean(text) if sys.stdout.isatty() else text, end="")


def remark(text: str) -> None:
    """Beside the data: on stderr."""
    print(clean(text), file=sys.stderr)


def tell(notice: Notice) -> None:
    print_sentence(f"{notice.level}: {notice.message} {notice.hint}".rstrip())


def as_json(value: Any) -> str:
    """One line."""
    return safe_json(json.dumps(value, ensure_ascii=False))


def print_event(event: AnyEvent) -> None:
    """A line for whatever reads them as they come."""
    print(as_json(to_dict(event)), flush=True)


def safe_json(text: str) -> str:
    """The same JSON, with no code point that drives a terminal, or that stdout cannot carry."""
    escaped = text.translate(ESCAPES)
    if (sys.stdout.encoding or "utf-8").lower() == "utf-8":
        return escaped
    return NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], escaped)
