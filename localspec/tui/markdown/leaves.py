"""A text that grows at its end, in leaves of a screen each: only the last leaf is styled and laid out again.

Knows nothing of Markdown, whose modules the first frame does without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from localspec.tui.markdown.layout import GrowingText

LEAF_LINES = 40
BLANK = Content(" ")  # a leaf that ended in an empty line would lose it


class Leaf(GrowingText, Static):
    """Some consecutive lines of a text."""

    def __init__(self, content: Content) -> None:
        super().__init__(content, markup=False)
        self.shown = content

    def show(self, content: Content) -> None:
        before, self.shown = self.shown, content
        self.grow(before, content)


def leaves_of(content: Content) -> Iterator[Content]:
    """Cuts a styled text into the leaves' contents."""
    lines = [line or BLANK for line in content.split("\n", allow_blank=True)]
    for start in range(0, len(lines), LEAF_LINES):
        yield Content("\n").join(lines[start : start + LEAF_LINES])


async def grow(parent: Widget, text: str, style: Callable[[str], Content], leaf: type[Leaf] = Leaf) -> None:
    """Bring the parent's leaves up to the text, of which all but the last leaf's lines are there already."""
    leaves = list(parent.query_children(Leaf))
    lines = [line or " " for line in text.split("\n")]
    first = max(0, len(leaves) - 1)
    starts = range(first * LEAF_LINES, len(lines), LEAF_LINES)
    fresh = [style("\n".join(lines[start : start + LEAF_LINES])) for start in starts]
    for one, content in zip(leaves[first:], fresh, strict=False):
        one.show(content)
        if len(fresh) > 1:
            one.settle()
    await parent.mount_all(leaf(content) for content in fresh[len(leaves) - first :])
