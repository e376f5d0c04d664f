"""A passage of an answer as Markdown that grows: Textual's Markdown, but of code only the last leaf is drawn again, and
of a list only the last item.
"""

from __future__ import annotations

from textual.widget import Widget
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock

from localspec.core.sanitize import clean
from localspec.tui.markdown.code import Fence
from localspec.tui.markdown.layout import Aside, GrowingText, Pile
from localspec.tui.markdown.lists import Bullets, Numbers
from localspec.tui.markdown.paragraph import Paragraph
from localspec.tui.markdown.parser import parser
from localspec.tui.markdown.passages import Passage

GROWING: dict[str, type[MarkdownBlock]] = {
    "fence": Fence,
    "code_block": Fence,
    "bullet_list_open": Bullets,
    "ordered_list_open": Numbers,
    "paragraph_open": Paragraph,
}


class MarkdownPassage(Aside, Pile, Markdown):
    """Follows a passage."""

    _end: Widget | None = None  # where it grows

    def __init__(self, passage: Passage) -> None:
        self.passage = passage
        self.is_finished = passage.has_ended
        whole = passage.text if passage.has_ended else ""  # Textual takes what it begins with for closed blocks
        self._shown = len(whole)
        super().__init__(clean(whole), parser_factory=parser, open_links=False)

    def get_block_class(self, block_name: str) -> type[MarkdownBlock]:
        return GROWING.get(block_name) or super().get_block_class(block_name)

    async def follow(self) -> None:
        """The passage may have grown, or ended."""
        text = self._decided()
        fragment, self._shown = text[self._shown :], max(self._shown, len(text))
        if fragment:
            await self.append(clean(fragment))
            self._grow_at(last_of(self))
        if self.passage.has_ended and not self.is_finished:
            self.is_finished = True
            self._grow_at(None)
            for fence in self.query(Fence):
                await fence.settle()

    def _decided(self) -> str:
        """The passage, without a number that may yet begin an item: as text it would end the list above it for good."""
        before, newline, line = self.passage.text.rpartition("\n")
        return before + newline if line.strip().isdigit() and not self.passage.has_ended else self.passage.text

    def _grow_at(self, end: Widget | None) -> None:
        """Moves the growing end to this widget; the one before it is final."""
        if end is not self._end:
            if isinstance(self._end, GrowingText):
                self._end.settle()
            if isinstance(end, GrowingText):
                end.reserve()
            self._end = end


def last_of(widget: Widget) -> Widget:
    """The last widget in it that has none in it."""
    return last_of(widget.children[-1]) if widget.children else widget
