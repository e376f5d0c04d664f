"""The command palette: slash commands, chats and models."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from localspec.core.errors import LocalspecError
from localspec.core.sanitize import one_line
from localspec.history import StoredChat
from localspec.history.text.lists import model_name
from localspec.history.text.lists import title as chat_title
from localspec.tui.control.command_search import relevance
from localspec.tui.control.commands import COMMANDS
from localspec.tui.panels.sidebar import Sidebar
from localspec.tui.screens.chat import ChatScreen

if TYPE_CHECKING:
    from localspec.runtime.local_models import ListedModel

MOST = 1000  # chats, those used last; the sidebar has them all
OPENS, LOADS = "Open this chat", "Load this model"


class CommandProvider(Provider):
    """Offers every command in the palette over a chat: by its names, or by words for what it does."""

    async def discover(self) -> Hits:
        if isinstance(chat := self.screen, ChatScreen):
            for command in COMMANDS.values():
                yield DiscoveryHit(Content(command.usage), partial(chat.command_line.pick, command), help=command.says)

    async def search(self, query: str) -> Hits:
        if isinstance(chat := self.screen, ChatScreen):
            for command in COMMANDS.values():
                if score := relevance(command, query):
                    yield Hit(
                        score, Content(command.usage), partial(chat.command_line.pick, command), help=command.says
                    )


class ChatProvider(Provider):
    """Read when the palette opens. Words are looked for as they are: to guess at letters takes minutes on some."""

    async def startup(self) -> None:
        self.chats: Sequence[StoredChat] = ()
        if isinstance(self.screen, ChatScreen):
            with suppress(LocalspecError):  # the sidebar says why there are none
                self.chats = await asyncio.to_thread(self.screen.chats.store.chats, MOST)

    async def search(self, query: str) -> Hits:
        words = query.casefold().split()
        for chat in self.chats:
            name = chat_title(chat.title)
            if words and all(word in name.casefold() for word in words):
                choose = partial(self.screen.post_message, Sidebar.Chosen(chat.id))
                yield Hit(1.0, self.marked(name, words), choose, text=name, help=OPENS)

    def marked(self, name: str, words: Sequence[str]) -> Content:
        content = Content(name)
        for word in words:
            start = name.lower().find(word)
            if start >= 0 and self.match_style is not None:
                content = content.stylize(self.match_style, start, start + len(word))
        return content


class ModelProvider(Provider):
    """Looked through when the palette opens, in a thread. The word "model" finds all of them."""

    async def startup(self) -> None:
        self.models: Sequence[ListedModel] = ()
        if isinstance(self.screen, ChatScreen):
            with suppress(LocalspecError):  # the picker says what is wrong
                self.models = await asyncio.to_thread(lambda chat: list(chat.picker.here()), self.screen)

    async def discover(self) -> Hits:
        if isinstance(chat := self.screen, ChatScreen):
            for model in self.models:
                yield DiscoveryHit(shown(model), partial(chat.models.choose, model.name), help=LOADS)

    async def search(self, query: str) -> Hits:
        words = query.casefold().split()
        if isinstance(chat := self.screen, ChatScreen):
            for model in self.models:
                name = model_title(model).casefold()
                if words and all(word in name for word in words):
                    yield Hit(1.0, shown(model), partial(chat.models.choose, model.name), help=LOADS)


def model_title(model: ListedModel) -> str:
    return f"Model {model_name(model.name)}"


def shown(model: ListedModel) -> Content:
    """A model's line in the palette. It is not the help text, which the palette takes for markup."""
    return Content.assemble(model_title(model), (f" · {one_line(f'{model.quant} · {model.fit}')}", "$foreground-muted"))
