"""An answer's body: its passages one below the other, thoughts among them. Knows no rounds."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from localspec.tui.markdown.layout import Pile
from localspec.tui.markdown.passage import MarkdownPassage
from localspec.tui.markdown.passages import Passage, Passages
from localspec.tui.transcript.thought import Thought


class Body(Pile, Vertical):
    """Follows passages that grow. Only the last is laid out again; those before it stand."""

    def __init__(self, passages: Passages) -> None:
        super().__init__()
        self.passages = passages
        self._parts = [part(passage) for passage in passages]

    def compose(self) -> ComposeResult:
        yield from self._parts

    @property
    def source(self) -> str:
        """All that is shown, thoughts left out, as Markdown."""
        return "".join(shown.source for shown in self._parts if isinstance(shown, MarkdownPassage))

    async def follow(self) -> None:
        """Passages may have been added, and the last one there was may have grown."""
        if self._parts:
            await self._parts[-1].follow()
        fresh = [part(passage) for passage in self.passages[len(self._parts) :]]
        if fresh:
            self._parts += fresh
            await self.mount_all(fresh)
            for shown in fresh:
                await shown.follow()


def part(passage: Passage) -> MarkdownPassage | Thought:
    return Thought(passage) if passage.is_thought else MarkdownPassage(passage)
