"""A passage of an answer as Markdown that grows. Textual's own, but what has been written of a long block stands:
of code the last leaf is drawn again, of a list the last item.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Markdown
from textual.widgets._markdown import MarkdownBulletList, MarkdownOrderedList
from textual.widgets.markdown import MarkdownBlock

from localspec.sanitize import clean
from localspec.tui.fence import Fence
from localspec.tui.passages import Passage
from localspec.tui.reply import parser

Block = MarkdownBlock if TYPE_CHECKING else object  # a mixin: Textual styles a widget as its first base that is one


def spelled(blocks: list[MarkdownBlock]) -> Iterator[str]:
    """What the blocks say, with all that is in them; before they are composed, which empties them."""
    for block in blocks:
        yield f"{block.name} {block._content.plain}"
        yield from spelled(block._blocks)


class Growing(Block):
    """A list that knows what each of its items says."""

    items: tuple[tuple[str, ...], ...] = ()

    def spell(self) -> tuple[tuple[str, ...], ...]:
        """With the width of the numbers, which is the same for all."""
        width = str(len(str(len(self._blocks))))
        return tuple((width, *spelled(item._blocks)) for item in self._blocks)

    def compose(self) -> Iterator[Widget]:
        self.items = self.spell()
        yield from super().compose()

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        """Only the last item may differ; what else did is rare, and drawn anew as Textual does."""
        items = block.spell() if isinstance(block, Growing) and block.name == self.name else ()
        rows = list(self.query_children(Horizontal))
        stands = len(rows) - 1
        if not rows or len(items) <= stands or items[:stands] != self.items[:stands]:
            await super()._update_from_block(block)
            return
        self.items = items
        new = [row for row in block.compose() if isinstance(row, Horizontal)]
        await rows[-1].remove()
        await self.mount_all(new[stands:])


class GrowingBullets(Growing, MarkdownBulletList):
    """- one"""


class GrowingNumbers(Growing, MarkdownOrderedList):
    """1. one"""


class Said(Markdown):
    """Follows a passage."""

    BLOCKS: ClassVar[dict[str, type[MarkdownBlock]]] = {
        **Markdown.BLOCKS,
        "fence": Fence,
        "code_block": Fence,
        "bullet_list_open": GrowingBullets,
        "ordered_list_open": GrowingNumbers,
    }

    def __init__(self, passage: Passage) -> None:
        self.passage = passage
        self._settled = passage.has_ended
        whole = passage.text if passage.has_ended else ""  # Textual takes what it begins with for closed blocks
        self._shown = len(whole)
        super().__init__(clean(whole), parser_factory=parser, open_links=False)

    async def follow(self) -> None:
        """The passage may have grown, or ended."""
        fragment, self._shown = self.passage.text[self._shown :], len(self.passage.text)
        if fragment:
            await self.append(clean(fragment))
        if self.passage.has_ended and not self._settled:
            self._settled = True
            for fence in self.query(Fence):
                await fence.settle()
