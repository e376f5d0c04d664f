"""The themes in the command palette, by the names their files give them."""

from __future__ import annotations

from textual import theme
from textual.command import DiscoveryHit, Hit, Hits
from textual.content import Content


class ThemeProvider(theme.ThemeProvider):
    """Textual's own takes a name for markup."""

    async def discover(self) -> Hits:
        for name, choose in self.commands:
            yield DiscoveryHit(Content(name), choose)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, choose in self.commands:
            if score := matcher.match(name):
                yield Hit(score, Content(name), choose)
