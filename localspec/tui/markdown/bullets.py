"""Lists whose items have a sign before them."""

from __future__ import annotations

from textual.widgets._markdown import MarkdownBulletList

from localspec.tui.markdown.growing import Growing, Items


def own_signs(items: Items) -> list[str]:
    return [item.bullet for item in items]


class Bullets(Growing, MarkdownBulletList):
    """Each item's sign is known to it: how deep the list stands."""

    signs = staticmethod(own_signs)
