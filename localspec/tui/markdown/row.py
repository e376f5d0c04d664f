"""A line of a list."""

from __future__ import annotations

from collections.abc import Sequence

from textual.containers import Horizontal
from textual.widgets._markdown import MarkdownBullet
from textual.widgets.markdown import MarkdownBlock

from localspec.tui.markdown.item import Item
from localspec.tui.markdown.tall import Tall


class Row(Tall, Horizontal):
    """A sign and an item."""

    def __init__(self, sign: str, blocks: Sequence[MarkdownBlock]) -> None:
        self.item = Item(*blocks)
        bullet = MarkdownBullet()
        bullet.symbol = sign
        super().__init__(bullet, self.item)
