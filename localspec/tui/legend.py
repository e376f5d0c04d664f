"""What the marks of the token view mean, each word in its own mark. There while tokens are shown."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from localspec.tui.token_view import NO_TEXT, REJECTED, STYLES, place

LEGEND = Content.assemble(
    (f"drafted{place(0)}", STYLES["draft"]),
    "  ",
    ("bonus", STYLES["bonus"]),
    "  ",
    ("fix", STYLES["fix"]),
    "  ",
    ("plain", STYLES["plain"]),
    "  ",
    ("‹rejected›", REJECTED),
    " Shift+F3  ",
    (f"{NO_TEXT} empty", "$foreground-muted"),
)


class Legend(Static):
    """One line, no longer than the smallest terminal."""

    def __init__(self) -> None:
        super().__init__(LEGEND, markup=False)
        self.display = False
