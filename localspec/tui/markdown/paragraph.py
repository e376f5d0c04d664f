"""A paragraph of an answer: Textual lays out the screen again with every word of it, this one with every few lines.

Saves 0.13 of a core (docs/textual.md).
"""

from __future__ import annotations

from textual.widgets._markdown import MarkdownParagraph
from textual.widgets.markdown import MarkdownBlock

from localspec.tui.markdown.layout import GrowingText


class Paragraph(GrowingText, MarkdownParagraph):
    """Becomes what it has grown to."""

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        if isinstance(block, MarkdownParagraph):
            before, self._content = self._content, block._content
            self.grow(before, self._content)
            self._copy_context(block)
        else:
            await super()._update_from_block(block)
