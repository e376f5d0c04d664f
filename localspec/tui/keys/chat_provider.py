"""The chats that were kept, in the command palette: found by their titles."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from textual.command import Hit, Hits, Provider
from textual.content import Content

from localspec.core.errors import LocalspecError
from localspec.history import Chat
from localspec.history.text.lists import title
from localspec.tui.panels.sidebar import Sidebar
from localspec.tui.screens.chat import ChatScreen

MOST = 1000  # those used last; the sidebar has them all
HELP = "Open this chat"


class ChatProvider(Provider):
    """Read when the palette opens. Words are looked for as they are: to guess at letters takes minutes on some."""

    async def startup(self) -> None:
        self.chats: Sequence[Chat] = ()
        if isinstance(self.screen, ChatScreen):
            with suppress(LocalspecError):  # the sidebar says why there are none
                self.chats = await asyncio.to_thread(self.screen.shelf.chats, MOST)

    async def search(self, query: str) -> Hits:
        words = query.casefold().split()
        for chat in self.chats:
            name = title(chat.title)
            if words and all(word in name.casefold() for word in words):
                choose = partial(self.screen.post_message, Sidebar.Chosen(chat.id))
                yield Hit(1.0, self.marked(name, words), choose, text=name, help=HELP)

    def marked(self, name: str, words: Sequence[str]) -> Content:
        content = Content(name)
        for word in words:
            start = name.lower().find(word)
            if start >= 0 and self.match_style is not None:
                content = content.stylize(self.match_style, start, start + len(word))
        return content
