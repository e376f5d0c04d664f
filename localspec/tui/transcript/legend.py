"""The legend of the token view's marks, each word in its own mark: a line while tokens are shown, the first few
times; the mouse on a word says what it means."""

from __future__ import annotations

import asyncio

from textual import events, work
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
ITS_ODDS = SourceStyle(".6/.2", ODDS, "its probability to the drafter and to the model")
MEANINGS = [
    *ALL,
    SourceStyle("‹rejected›", REJECTED, "guessed, and wrong ({rejects} shows these, too)"),
    ITS_ODDS,
    SourceStyle(NO_TEXT, "$foreground-muted", "a token that has no text of its own"),
]


def legend(view: View, key: str) -> Content:
    """The legend, no line longer than the smallest terminal; `key` shows the rejected tokens."""
    if view == "rejects":
        marked = Content.assemble(WORDS, " ", ("‹rejected", REJECTED), (f" {ITS_ODDS.word}›", ODDS))
        return Content.assemble(marked, f"\n{ITS_ODDS.word}: {ITS_ODDS.meaning}")
    return Content.assemble(WORDS, " ", ("‹rejected›", REJECTED), f" {key}")


def meanings(node: MessagePump) -> Content:
    """A line for each mark, with the user's keys."""
    return Content("\n").join(
        Content.assemble((word, style), " " * (COLUMN - len(word)), with_keys(node, says))
        for word, style, says in MEANINGS
    )


def pointed(line: Content, x: int) -> SourceStyle | None:
    """The mark whose word is in this column of the legend."""
    for look in MEANINGS:
        start = line.plain.find(look.word.removesuffix("›"))
        if start >= 0 and start <= x < start + len(look.word):
            return look
    return None


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

    def on_mouse_move(self, event: events.MouseMove) -> None:
        at = event.get_content_offset(self)
        line = legend(self._view, with_keys(self, "{rejects}"))
        look = pointed(line, at.x) if at is not None and at.y == 0 else None
        self.tooltip = Content(with_keys(self, f"{look.word}: {look.meaning}.")) if look else None

    @work(group="legend", exclusive=True)
    async def _offer(self) -> None:
        """Shows the legend, unless it was shown often enough."""
        times = await asyncio.to_thread(hints.count, "legend")
        self.display = times <= TIMES and self._view != "markdown"
