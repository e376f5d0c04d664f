"""Refuses TOML that is expensive to parse: tomllib's time and memory grow with the square of a dotted key's parts."""

from __future__ import annotations

import re

MOST_PARTS = 64
PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
DEEP_KEY = re.compile(rf"(?<![\w-]){PART}(?:[ \t]*+\.[ \t]*+{PART}){{{MOST_PARTS}}}", re.ASCII)


def shallow(text: str) -> str:
    """The text; RecursionError where a dotted key has too many parts."""
    if DEEP_KEY.search(text):
        raise RecursionError("a key has too many parts")
    return text
