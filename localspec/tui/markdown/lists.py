"""Lists that grow at their end: Textual makes such a list anew with every word, this one its last block alone.

Saves 0.13 of a core (docs/textual.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets._markdown import MarkdownBullet, MarkdownBulletList, MarkdownListItem, MarkdownOrderedList
from textual.widgets.markdown import MarkdownBlock

from localspec.tui.markdown.code import Fence
from localspec.tui.markdown.layout import Pile, Tall
from localspec.tui.markdown.paragraph import Paragraph


class Item(Pile, Vertical):
    """The blocks of an item."""

    async def go_on(self, blocks: Sequence[MarkdownBlock]) -> None:
        """Continues the list: blocks before its last are the same, its last grows, and what follows is new."""
        end = self.children[-1]
        assert isinstance(end, MarkdownBlock)
        count = len(self.children)
        await end._update_from_block(blocks[count - 1])
        await self.mount_all(blocks[count:])


class Row(Tall, Horizontal):
    """A sign and an item."""

    def __init__(self, sign: str, blocks: Sequence[MarkdownBlock]) -> None:
        self.item = Item(*blocks)
        bullet = MarkdownBullet()
        bullet.symbol = sign
        super().__init__(bullet, self.item)


if TYPE_CHECKING:
    Block = MarkdownBlock
else:
    Block = object  # a mixin, as Tall is

Items = list[MarkdownListItem]


class Growing(Tall, Block):
    """Knows what each block of each of its items says."""

    texts: tuple[tuple[str, ...], ...] = ()
    signs: ClassVar[staticmethod[[Items], list[str]]]  # what stands before each item

    @property
    def items(self) -> list[MarkdownListItem]:
        return [block for block in self._blocks if isinstance(block, MarkdownListItem)]

    @property
    def signed(self) -> list[tuple[str, MarkdownListItem]]:
        return list(zip(type(self).signs(self.items), self.items, strict=True))

    def spell(self) -> tuple[tuple[str, ...], ...]:
        return tuple((sign, *map(spelled, item._blocks)) for sign, item in self.signed)

    def rows(self, start: int = 0) -> Iterator[Row]:
        for sign, item in self.signed[start:]:
            yield Row(sign, item._blocks)

    def compose(self) -> ComposeResult:
        self.texts = self.spell()
        yield from self.rows()
        self._blocks.clear()

    def goes_on_in(self, block: MarkdownBlock) -> bool:
        """Whether only the last item differs, if any does."""
        stands = len(self.texts) - 1
        if not isinstance(block, Growing) or block.name != self.name:
            return False
        says = block.spell()
        return len(says) > stands and says[:stands] == self.texts[:stands]

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        """Updates the last block of the last item; any other difference is rare, and drawn anew as Textual does."""
        rows = list(self.query_children(Row))
        if not (isinstance(block, Growing) and rows and self.goes_on_in(block)):
            await super()._update_from_block(block)
            return
        stands = len(rows) - 1
        (*before, _), self.texts = self.texts[stands], block.spell()
        blocks, shown = block.items[stands]._blocks, rows[stands].item
        if list(self.texts[stands][: len(before)]) == before and item_goes_on(shown, blocks):
            await shown.go_on(blocks)
            stands += 1
        else:
            await rows[stands].remove()
        await self.mount_all(block.rows(stands))


def spelled(block: MarkdownBlock) -> str:
    """The text of a block and all in it; to be read before it is composed, which empties it."""
    return "".join([f"{block.name} {block._content.plain}\n", *map(spelled, block._blocks)])


def goes_on(shown: Widget, block: MarkdownBlock) -> bool:
    """Whether this is what is shown and more of it, and can be shown in its place."""
    if isinstance(shown, Growing):
        return shown.goes_on_in(block)
    return isinstance(shown, Paragraph | Fence) and type(shown) is type(block)


def item_goes_on(item: Item, blocks: Sequence[MarkdownBlock]) -> bool:
    """Whether these are its own and more of the last one, if those before that are."""
    end = len(item.children) - 1
    return 0 <= end < len(blocks) and goes_on(item.children[end], blocks[end])


def own_signs(items: Items) -> list[str]:
    return [item.bullet for item in items]


class Bullets(Growing, MarkdownBulletList):
    """Each item's sign is known to it: how deep the list stands."""

    signs = staticmethod(own_signs)


def numbers(items: Items) -> list[str]:
    """The items' numbers, all as wide as the last."""
    first = int(items[0].bullet) if items else 1
    found = [f"{first + index}. " for index in range(len(items))]
    return [number.rjust(len(found[-1]) + 1) for number in found]


class Numbers(Growing, MarkdownOrderedList):
    """Counted from the first item's number on."""

    signs = staticmethod(numbers)
