"""An answer's text in passages that are laid out one by one: the reply, cut where a block has ended, and thoughts.

A passage that has a successor never changes again. Knows where Markdown's code fences stand, and no widgets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"
FENCE = re.compile(r"[\s>]*(?:(?:[-*+]|\d+[.)])\s+)*(`{3,}|~{3,})(.*)", re.DOTALL)
MAY_GO_ON = frozenset(" \t\n-*+0123456789")  # a line that begins so may belong to the list above it
CUT_CHARACTERS = 1500  # a screen: so much is laid out again with every frame


@dataclass
class Passage:
    """`num_tokens` of a thought; 0 where they are not known."""

    is_thought: bool = False
    text: str = ""
    num_tokens: int = 0
    has_ended: bool = False


class Passages(list[Passage]):
    """A thought opens at the beginning of a line outside code, and ends at its closing tag wherever that stands."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._held = ""  # what may yet turn out to begin a tag
        self._line = ""  # the line so far
        self._fence = ""  # of the code block that is open
        self._after_blank = False
        if text:
            self.add(text)
            self.end()

    @property
    def in_code(self) -> bool:
        return bool(self._fence) and not self.thinking

    @property
    def thinking(self) -> bool:
        return bool(self) and self[-1].is_thought and not self[-1].has_ended

    def add(self, text: str, num_tokens: int = 0) -> None:
        was_thinking = self.thinking
        rest, self._held = self._held + text, ""
        while rest:
            rest = self._think(rest) if self.thinking else self._say(rest)
        if was_thinking and self.thinking:
            self[-1].num_tokens += num_tokens

    def end(self) -> None:
        """Ends the answer: text that was held back is text like any other."""
        held, self._held = self._held, ""
        if held:
            self._open_passage().text += held
        if self:
            self[-1].has_ended = True

    def _say(self, text: str) -> str:
        """Take one line or what there is of it; the rest."""
        line, newline, rest = text.partition("\n")
        whole = self._line + line + newline
        if not self._fence:
            bare = whole.lstrip()
            if bare.startswith(OPEN):
                if self:
                    self[-1].has_ended = True
                self.append(Passage(is_thought=True))
                self._line = ""
                return bare[len(OPEN) :] + rest
            if not newline and OPEN.startswith(bare):
                self._held = line
                return ""
        if self._may_cut(whole):
            self[-1].has_ended = True
        self._open_passage().text += line + newline
        self._line = "" if newline else whole
        if newline:
            self._end_line(whole)
        return rest

    def _think(self, text: str) -> str:
        thought, tag, rest = text.partition(CLOSE)
        if tag:
            self[-1].text += thought
            self[-1].has_ended = True
            return rest
        held = next((n for n in range(len(CLOSE) - 1, 0, -1) if text.endswith(CLOSE[:n])), 0)
        self[-1].text += text[: len(text) - held]
        self._held = text[len(text) - held :]
        return ""

    def _open_passage(self) -> Passage:
        """The passage that text is added to now."""
        if not self or self[-1].has_ended:
            self.append(Passage())
        return self[-1]

    def _may_cut(self, line: str) -> bool:
        """Whether a passage may end before this line: at the beginning of a block that nothing before it can affect."""
        if self._line or self._fence or not self._after_blank or not self:
            return False
        return len(self[-1].text) > CUT_CHARACTERS and line[0] not in MAY_GO_ON

    def _end_line(self, line: str) -> None:
        self._after_blank = not line.strip()
        found = FENCE.fullmatch(line)
        if found is None:
            return
        mark, info = found[1], found[2]
        if not self._fence:
            self._fence = mark if mark[0] == "~" or "`" not in info else ""
        elif mark.startswith(self._fence) and not info.strip():
            self._fence = ""
