"""Other people's errors, fit to stand in a sentence."""

from __future__ import annotations

from localspec.core.sanitize import one_line

LONGEST = 160  # characters


def sentence_of(fault: Exception) -> str:
    """The first line of what it says, or its kind."""
    return short(str(fault).strip().partition("\n")[0]) or type(fault).__name__


def short(text: str) -> str:
    """One line, without a full stop."""
    line = one_line(text).rstrip(".")
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
