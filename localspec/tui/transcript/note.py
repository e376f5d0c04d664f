"""What the program itself says in the transcript. The door where it is cleaned."""

from __future__ import annotations

from textual.widgets import Static

from localspec.core.sanitize import clean

SIGNS = {"warning": "! ", "error": "✗ "}  # colour alone would say nothing in monochrome


class Note(Static):
    """A line from the program itself, not from anyone in the conversation."""

    def __init__(self, text: str, *, level: str = "info") -> None:
        self.said = f"{SIGNS.get(level, '')}{clean(text)}"
        super().__init__(self.said, markup=False, classes=f"-{level}")
