"""The models on this machine, in the command palette: found by their names, loaded when chosen."""

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
from localspec.history.text.lists import model_name
from localspec.tui.screens.chat import ChatScreen

if TYPE_CHECKING:
    from localspec.runtime.local_models import Shelved

HELP = "Load this model"


class ModelProvider(Provider):
    """Looked through when the palette opens, in a thread. The word "model" finds all of them."""

    async def startup(self) -> None:
        self.models: Sequence[Shelved] = ()
        if isinstance(self.screen, ChatScreen):
            with suppress(LocalspecError):  # the picker says what is wrong
                self.models = await asyncio.to_thread(lambda chat: list(chat.models_here()), self.screen)

    async def discover(self) -> Hits:
        if isinstance(chat := self.screen, ChatScreen):
            for model in self.models:
                yield DiscoveryHit(shown(model), partial(chat.choose, model.name), help=HELP)

    async def search(self, query: str) -> Hits:
        words = query.casefold().split()
        if isinstance(chat := self.screen, ChatScreen):
            for model in self.models:
                name = title(model).casefold()
                if words and all(word in name for word in words):
                    yield Hit(1.0, shown(model), partial(chat.choose, model.name), help=HELP)


def title(model: Shelved) -> str:
    return f"Model {model_name(model.name)}"


def shown(model: Shelved) -> Content:
    """Not in the help, which the palette takes for markup."""
    return Content.assemble(title(model), (f" · {one_line(f'{model.quant} · {model.fit}')}", "$foreground-muted"))
