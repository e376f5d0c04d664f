"""The legend of the token view's marks, each word in its own mark: a line while tokens are shown, the first few
times."""

from __future__ import annotations

import asyncio

from textual import work
from textual.content import Content
from textual.message_pump import MessagePump
from textual.widgets import Static

from localspec.tui.chat import hints
from localspec.tui.keys.key_names import with_keys
from localspec.tui.transcript.token_view import NO_TEXT, ODDS, REJECTED, STYLES, View, place

TIMES = 3  # then it is known, and F1 has it
SOURCES = Content(" ").join(
    Content.styled(word, style)
    for word, style in [
        (f"drafted{place(0)}", STYLES["draft"]),
        ("bonus", STYLES["bonus"]),
        ("fix", STYLES["fix"]),
        ("plain", STYLES["plain"]),
        ("«edited»", STYLES["edited"]),
    ]
)
COLUMN = 14  # of the marks, where each has a line of its own
MEANINGS = [
    (f"drafted{place(0)}", STYLES["draft"], "by the drafter, at this position of its draft; paler the further on"),
    ("bonus", STYLES["bonus"], "by the target, after a draft that was right as a whole"),
    ("fix", STYLES["fix"], "by the target, where the draft was wrong; point at it with the mouse"),
    ("plain", STYLES["plain"], "by the target, in a round without a draft"),
    ("«edited»", STYLES["edited"], "by you: the answer was edited; in no figure"),
    ("‹rejected›", REJECTED, "rejected draft tokens ({rejects}), with p of drafter and target"),
    (NO_TEXT, "$foreground-muted", "a token that has no text of its own"),
]


def legend(view: View, key: str) -> Content:
    """The legend on one line, no longer than the smallest terminal; `key` shows the rejected tokens."""
    if view == "rejects":
        return Content.assemble(SOURCES, " ", ("‹rejected", REJECTED), (" p draft/model›", ODDS))
    return Content.assemble(SOURCES, "  ", ("‹rejected›", REJECTED), f" {key}")


def meanings(node: MessagePump) -> Content:
    """A line for each mark, with the user's keys."""
    return Content("\n").join(
        Content.assemble((word, style), " " * (COLUMN - len(word)), with_keys(node, says))
        for word, style, says in MEANINGS
    )


class Legend(Static):
    """Shows the legend while tokens are shown, the first few times."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._view: View = "markdown"
        self.display = False

    def follow(self, view: View) -> None:
        before, self._view = self._view, view
        self.update(legend(view, with_keys(self, "{rejects}")))
        if view == "markdown":
            self.display = False
        elif before == "markdown":
            self._offer()

    @work(group="legend", exclusive=True)
    async def _offer(self) -> None:
        """Shows the legend, unless it was shown often enough."""
        times = await asyncio.to_thread(hints.count, "legend")
        self.display = times <= TIMES and self._view != "markdown"
