"""Errors of other programs, shortened for use inside a sentence."""

from __future__ import annotations

from localspec.core.sanitize import one_line

LONGEST = 160  # characters


def sentence_of(fault: Exception) -> str:
    """The first line of the error, or its class."""
    return short(str(fault).strip().partition("\n")[0]) or type(fault).__name__


def short(text: str) -> str:
    """The text as one line without a full stop, cut to LONGEST characters."""
    line = one_line(text).rstrip(".")
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
