"""A sentence of ours on stderr: broken between words on a terminal, one line for whatever reads a pipe."""

from __future__ import annotations

import sys
import textwrap
from shutil import get_terminal_size

from localspec.core.sanitize import clean


def print_sentence(sentence: str) -> None:
    text = clean(sentence)
    print(folded(text, get_terminal_size().columns) if sys.stderr.isatty() else text, file=sys.stderr)


def folded(text: str, width: int) -> str:
    """A word that is longer than a line, as a path may be, stays whole."""
    lines = (textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) for line in text.splitlines())
    return "\n".join("\n".join(line) for line in lines)
