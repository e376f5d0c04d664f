"""Lists whose items are counted."""

from __future__ import annotations

from textual.widgets._markdown import MarkdownOrderedList

from localspec.tui.markdown.growing import Growing, Items


def numbers(items: Items) -> list[str]:
    """As wide as the last."""
    first = int(items[0].bullet) if items else 1
    found = [f"{first + place}. " for place in range(len(items))]
    return [number.rjust(len(found[-1]) + 1) for number in found]


class Numbers(Growing, MarkdownOrderedList):
    """Counted from the first item's number on."""

    signs = staticmethod(numbers)
