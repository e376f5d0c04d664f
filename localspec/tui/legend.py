"""What the marks of the token view mean, each word in its own mark. There while tokens are shown."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from localspec.tui.token_view import NO_TEXT, ODDS, REJECTED, STYLES, View, place

SOURCES = Content("  ").join(
    Content.styled(word, style)
    for word, style in [
        (f"drafted{place(0)}", STYLES["draft"]),
        ("bonus", STYLES["bonus"]),
        ("fix", STYLES["fix"]),
        ("plain", STYLES["plain"]),
    ]
)
LEGENDS: dict[View, Content] = {
    "tokens": Content.assemble(
        *(SOURCES, "  ", ("‹rejected›", REJECTED), " Shift+F3  ", (f"{NO_TEXT} empty", "$foreground-muted"))
    ),
    "rejects": Content.assemble(SOURCES, "  ", ("‹rejected", REJECTED), (" p drafter/target›", ODDS)),
}


class Legend(Static):
    """One line, no longer than the smallest terminal."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.display = False

    def follow(self, view: View) -> None:
        self.display = view in LEGENDS
        self.update(LEGENDS.get(view, ""))
