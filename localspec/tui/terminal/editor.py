"""A text in the user's own editor: written to a file that only the user can read, and read again. Knows no screen."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from localspec.core.errors import UsageError
from localspec.core.sanitize import clean

CHOOSE = "Set EDITOR to one, as in: export EDITOR=nano"


def chosen_editor() -> list[str]:
    """The command that VISUAL or EDITOR names."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        command = shlex.split(named, posix=os.name == "posix")
    except ValueError as fault:
        raise UsageError(f"The name of the editor cannot be read ({fault}).", hint=CHOOSE) from fault
    if not command:
        raise UsageError("There is no editor.", hint=CHOOSE)
    return command


@dataclass(frozen=True, slots=True)
class EditedText:
    """The text as it was saved, or as it was before with what went wrong."""

    text: str
    trouble: str = ""


def edited(text: str, command: list[str]) -> EditedText:
    """Returns when the editor has ended. Raises nothing: the terminal must be taken back from it."""
    try:
        with TemporaryDirectory(prefix="localspec-") as folder:
            file = Path(folder) / "question.md"
            file.write_text(text, encoding="utf-8")
            subprocess.run([*command, str(file)], check=True)
            return EditedText(clean(file.read_text(encoding="utf-8", errors="replace")).rstrip("\n"))
    except subprocess.CalledProcessError as fault:
        return EditedText(text, f"The editor {command[0]} ended with {fault.returncode}; the text is unchanged.")
    except OSError as fault:
        return EditedText(text, f"The editor {command[0]} cannot be used ({fault.strerror}). {CHOOSE}")
