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
from localspec.tui.transcript.sources import ALL, ODDS, REJECTED, SourceStyle
from localspec.tui.transcript.token_view import NO_TEXT, View

TIMES = 3  # then it is known, and F1 has it
WORDS = Content(" ").join(Content.styled(look.word, look.style) for look in ALL)
COLUMN = 14  # of the marks, where each has a line of its own
MEANINGS = [
    *ALL,
    SourceStyle("‹rejected›", REJECTED, "rejected draft tokens ({rejects}), with p of drafter and target"),
    SourceStyle(NO_TEXT, "$foreground-muted", "a token that has no text of its own"),
]


def legend(view: View, key: str) -> Content:
    """The legend on one line, no longer than the smallest terminal; `key` shows the rejected tokens."""
    if view == "rejects":
        return Content.assemble(WORDS, " ", ("‹rejected", REJECTED), (" .6/.2›", ODDS))
    return Content.assemble(WORDS, " ", ("‹rejected›", REJECTED), f" {key}")


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
