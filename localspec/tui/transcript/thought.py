"""A model's thoughts before its answer, in one line that opens. While it thinks, its last line shows too."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from localspec.core.sanitize import clean
from localspec.tui.markdown.leaves import Leaf, grow
from localspec.tui.markdown.passages import Passage

SHUT, OPENED = "▸", "▾"
WORDS_SHOWN = 200  # of the last line: more than any terminal is wide


class Thought(Vertical):
    """Follows a passage that grows. A click opens it and shuts it, as the chat's key does for all of them."""

    is_open: reactive[bool] = reactive(False, init=False)

    def __init__(self, passage: Passage) -> None:
        super().__init__()
        self.passage = passage
        self._title = Static(self.title(), markup=False, classes="title")
        self._last = Static(markup=False, classes="last")
        self._all = Vertical(classes="all")

    def compose(self) -> ComposeResult:
        yield from (self._title, self._last, self._all)

    async def follow(self) -> None:
        """The passage may have grown, or ended."""
        text = clean(self.passage.text).strip("\n")
        self.display = bool(text.strip()) or not self.passage.has_ended  # some models are made to think nothing
        self._title.update(self.title())
        self._last.display = not (self.is_open or self.passage.has_ended) and bool(text.strip())
        self._last.update(text.rstrip().rpartition("\n")[2][-WORDS_SHOWN:])
        self._all.display = self.is_open
        if self.is_open:
            await grow(self._all, text, Content)
            if self.passage.has_ended:
                for leaf in self._all.query_children(Leaf):
                    leaf.settle()

    def title(self) -> str:
        counted = f" {self.passage.num_tokens:,} tokens" if self.passage.num_tokens else ""
        name = f"thought{':' if counted else ''}" if self.passage.has_ended else "thinking…"
        return f"{OPENED if self.is_open else SHUT} {name}{counted}"

    async def on_mount(self) -> None:
        await self.follow()

    async def watch_is_open(self) -> None:
        await self.follow()

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.is_open = not self.is_open
