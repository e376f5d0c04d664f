"""Lists in an answer: Textual makes a list that grows anew with every word; this one keeps all items but the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets._markdown import MarkdownBullet, MarkdownBulletList, MarkdownListItem, MarkdownOrderedList
from textual.widgets.markdown import MarkdownBlock

from localspec.tui.tall import Tall

if TYPE_CHECKING:
    Block = MarkdownBlock
else:
    Block = object  # a mixin, as Tall is


def spelled(blocks: list[MarkdownBlock]) -> Iterator[str]:
    """What the blocks say, with all that is in them; before they are composed, which empties them."""
    for block in blocks:
        yield f"{block.name} {block._content.plain}"
        yield from spelled(block._blocks)


Items = list[MarkdownListItem]


def own_signs(items: Items) -> list[str]:
    return [item.bullet for item in items]


def numbers(items: Items) -> list[str]:
    """As wide as the last."""
    first = int(items[0].bullet) if items else 1
    found = [f"{first + place}. " for place in range(len(items))]
    return [number.rjust(len(found[-1]) + 1) for number in found]


class Row(Tall, Horizontal):
    """A sign and an item."""


class Item(Tall, Vertical):
    """The blocks of an item."""


class Growing(Tall, Block):
    """Knows what each of its items says."""

    said: tuple[tuple[str, ...], ...] = ()
    signs: ClassVar[staticmethod[[Items], list[str]]]  # what stands before each item

    @property
    def items(self) -> list[MarkdownListItem]:
        return [block for block in self._blocks if isinstance(block, MarkdownListItem)]

    @property
    def signed(self) -> list[tuple[str, MarkdownListItem]]:
        return list(zip(type(self).signs(self.items), self.items, strict=True))

    def spell(self) -> tuple[tuple[str, ...], ...]:
        return tuple((sign, *spelled(item._blocks)) for sign, item in self.signed)

    def rows(self) -> Iterator[Row]:
        for sign, item in self.signed:
            bullet = MarkdownBullet()
            bullet.symbol = sign
            yield Row(bullet, Item(*item._blocks))

    def compose(self) -> ComposeResult:
        self.said = self.spell()
        yield from self.rows()
        self._blocks.clear()

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        """Only the last item may differ; what else did is rare, and drawn anew as Textual does."""
        says = block.spell() if isinstance(block, Growing) and block.name == self.name else ()
        rows = list(self.query_children(Row))
        stands = len(rows) - 1
        if not isinstance(block, Growing) or len(says) <= stands or says[:stands] != self.said[:stands]:
            await super()._update_from_block(block)
            return
        self.said = says
        await rows[-1].remove()
        await self.mount_all(list(block.rows())[stands:])


class Bullets(Growing, MarkdownBulletList):
    """Each item's sign is known to it: how deep the list stands."""

    signs = staticmethod(own_signs)


class Numbers(Growing, MarkdownOrderedList):
    """Counted from the first item's number on."""

    signs = staticmethod(numbers)
