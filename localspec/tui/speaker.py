"""The line above a message: who says it, and which of its versions it is. Knows nothing else about messages."""

from __future__ import annotations

from textual.widgets import Static

POINTED = "▶ "


class Speaker(Static):
    """`version` is one of so many, counted from one. A mark stands before the name of a message that is pointed at."""

    def __init__(self, name: str, version: tuple[int, int] = (1, 1)) -> None:
        self._who, self._version, self._pointed = name, version, False
        super().__init__(self._words, markup=False, classes="speaker")

    @property
    def _words(self) -> str:
        number, total = self._version
        return f"{POINTED if self._pointed else ''}{self._who}{f'  ‹{number}/{total}›' if total > 1 else ''}"

    def rename(self, name: str) -> None:
        self._who = name
        self.update(self._words)

    def point(self, pointed: bool) -> None:
        self._pointed = pointed
        self.set_class(pointed, "-pointed")
        self.update(self._words)
