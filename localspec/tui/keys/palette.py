"""The slash commands in Textual's command palette."""

from __future__ import annotations

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from localspec.tui.control.commands import COMMANDS, Command
from localspec.tui.screens.chat import ChatScreen


class CommandProvider(Provider):
    """What the palette offers over a chat: every command, by its name, an alias or what it does."""

    async def discover(self) -> Hits:
        if isinstance(chat := self.screen, ChatScreen):
            for command in COMMANDS:
                yield DiscoveryHit(Content(command.usage), partial(chat.pick, command), help=command.says)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        if isinstance(chat := self.screen, ChatScreen):
            for command in COMMANDS:
                if score := max(matcher.match(word) for word in words(command)):
                    yield Hit(score, Content(command.usage), partial(chat.pick, command), help=command.says)


def words(command: Command) -> tuple[str, ...]:
    return (*(f"/{name}" for name in command.names), command.says)
