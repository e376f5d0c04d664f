"""Code that grows at its end, in leaves of a screen each: only the last leaf is styled and laid out again.

Saves 0.15 of a core while code is written (docs/textual.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from markdown_it.token import Token
from rich.segment import Segment
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets.markdown import Markdown, MarkdownBlock, MarkdownFence

from localspec.tui.markdown.leaves import Leaf, grow, leaves_of

GOES_ON = "↳"
LONGEST_COLOURED = 10_000  # characters of a line: colouring 100,000 of them holds the screen for a second


class CodeLeaf(Leaf):
    """Lines of code, broken where they are longer than the block. A mark beside the text says where a line goes on;
    what is copied has neither breaks nor marks."""

    def render_lines(self, crop: Region) -> list[Strip]:
        strips = super().render_lines(crop)
        return strips if crop.x else [self.marked(strip) if goes_on(strip) else strip for strip in strips]

    def marked(self, strip: Strip) -> Strip:
        width = self.styles.padding.left
        mark = Segment(GOES_ON.ljust(width)[:width], self.visual_style.rich_style)
        return Strip([mark, *strip.crop(width)], strip.cell_length)


def goes_on(strip: Strip) -> bool:
    """Whether it begins after the beginning of a line of the text."""
    offsets = (segment.style.meta["offset"][0] for segment in strip if segment.style and "offset" in segment.style.meta)
    return next(offsets, 0) > 0


class Fence(MarkdownFence):
    """A code block. While it grows each leaf is coloured alone; `settle` colours it as a whole, for strings of many
    lines."""

    def __init__(self, markdown: Markdown, token: Token, code: str) -> None:
        MarkdownBlock.__init__(self, markdown, token)  # not its own, which colours
        self.code, self.lexer = code, token.info
        self.auto_links = False

    def compose(self) -> ComposeResult:
        yield from map(CodeLeaf, leaves_of(self.coloured(self.code)))

    def coloured(self, code: str) -> Content:
        lexer = self.lexer if max(map(len, code.split("\n"))) <= LONGEST_COLOURED else "text"
        return self.highlight(code, lexer, ansi=self.app.native_ansi_color, dark=self.app.current_theme.dark)

    async def settle(self) -> None:
        """Colours the whole block once nothing more is added."""
        leaves = list(self.query_children(Leaf))
        if len(leaves) > 1:
            for leaf, content in await asyncio.to_thread(self._differing, leaves):
                leaf.show(content)

    def _differing(self, leaves: Sequence[Leaf]) -> list[tuple[Leaf, Content]]:
        """The leaves that differ when all is coloured as a whole. Runs in a thread: of long code it takes a while."""
        whole = leaves_of(self.coloured(self.code))
        return [(leaf, one) for leaf, one in zip(leaves, whole, strict=False) if not leaf.shown.is_same(one)]

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        if isinstance(block, Fence):
            self._copy_context(block)
            await grow(self, self.code, self.coloured, CodeLeaf)
        else:
            await super()._update_from_block(block)

    def _copy_context(self, block: MarkdownBlock) -> None:
        if isinstance(block, Fence):
            self.code, self.lexer = block.code, block.lexer
        MarkdownBlock._copy_context(self, block)

    def notify_style_update(self) -> None:
        """The colours are the theme's own variables: nothing is coloured again."""
        MarkdownBlock.notify_style_update(self)
