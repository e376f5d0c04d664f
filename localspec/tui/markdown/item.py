"""What stands behind a sign in a list."""

from __future__ import annotations

from collections.abc import Sequence

from textual.containers import Vertical
from textual.widgets.markdown import MarkdownBlock

from localspec.tui.markdown.pile import Pile


class Item(Pile, Vertical):
    """The blocks of an item."""

    async def go_on(self, blocks: Sequence[MarkdownBlock]) -> None:
        """Those before its last are the same, its last is to grow, and what follows is new."""
        end = self.children[-1]
        assert isinstance(end, MarkdownBlock)
        place = len(self.children)
        await end._update_from_block(blocks[place - 1])
        await self.mount_all(blocks[place:])
