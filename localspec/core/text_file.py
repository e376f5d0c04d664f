"""Reads localspec's own text files, and says what is no text; an error is one sentence. Knows no format."""

from __future__ import annotations

from pathlib import Path

from localspec.core.errors import LocalspecError, UsageError


def not_utf8(what: str) -> UsageError:
    """What the user gives to a model is in another encoding."""
    return UsageError(f"{what} is not UTF-8 text.", hint="Convert it first, e.g. with iconv.")


def read_text(file: Path, what: str) -> str:
    """The file's text. `what` names the file in errors, e.g. "exam file"."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8 text"
        raise LocalspecError(f"The {what} {file} cannot be read ({reason}).") from fault
