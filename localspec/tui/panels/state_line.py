"""A line over a list: what is waited for, or why there is nothing to see. Without a sentence it takes no row."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from localspec.core.sanitize import one_line


class StateLine(Static):
    """`waits`: what is waited for, until its answer; "" for nothing."""

    waits = ""

    def __init__(self) -> None:
        super().__init__(markup=False, classes="state")
        self.display = False

    def say(self, sentence: str) -> None:
        self.update(Content(one_line(sentence)))
        self.display = bool(sentence)

    def wait(self, words: str) -> None:
        """Say what is waited for, until its answer."""
        self.waits = words
        self.say(words)

    def rest(self, sentence: str) -> None:
        """Say this where nothing is waited for."""
        self.say(self.waits or sentence)
