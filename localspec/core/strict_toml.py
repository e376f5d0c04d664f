"""TOML that may be parsed: time and memory that tomllib takes for a dotted key grow with the square of its parts."""

from __future__ import annotations

import re

MOST_PARTS = 64
PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
DEEP_KEY = re.compile(rf"(?<![\w-]){PART}(?:[ \t]*+\.[ \t]*+{PART}){{{MOST_PARTS}}}", re.ASCII)


def shallow(text: str) -> str:
    """The same text; RecursionError where a dotted key of it has too many parts."""
    if DEEP_KEY.search(text):
        raise RecursionError("a key has too many parts")
    return text
