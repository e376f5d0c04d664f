"""Chooses, loads and unloads the model and its drafter. An answer that is being written ends first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from textual.message import Message

from localspec.core.errors import LocalspecError
from localspec.tui.control.library import Library
from localspec.tui.control.parts import Parts
from localspec.tui.control.speculation import Speculation
from localspec.tui.control.state import AWAY
from localspec.tui.control.tuning import Choice
from localspec.tui.control.turns import Turns
from localspec.tui.panels.on_disk import Pick

if TYPE_CHECKING:
    from localspec.hub.queue import Download
    from localspec.runtime.local_models import Shelved

STOP_FIRST = "Stop the answer first: press {stop}."
UNLOADED = "unloaded: the next question loads it again"
IN_USE = "This model is loaded already, with this draft."


class Chosen(Message):
    """A model that is there is to be loaded."""

    def __init__(self, choice: Choice) -> None:
        super().__init__()
        self.choice = choice


class Models:
    """An answer that is being written is stopped and saved; a question that waits goes back to the prompt."""

    def __init__(self, parts: Parts, turns: Turns, speculation: Speculation, library: Library) -> None:
        self.screen, self.state, self.feedback, self.engine = parts.screen, parts.state, parts.feedback, parts.engine
        self.tuning, self.recorder = parts.tuning, parts.recorder
        self.turns, self.speculation, self.library = turns, speculation, library
        self.newest = ""  # the last that was downloaded, until the models are looked at
        library.listed_anew = self.list_anew

    def model(self, argument: str) -> None:
        """/model"""
        self.choose(argument) if argument else self.pick()

    def draft(self, argument: str) -> None:
        """/draft"""
        self.choose(self.tuning.load.model, argument) if argument else self.pick(drafts_first=True)

    def pick(self, *, drafts_first: bool = False) -> None:
        """Opens the models screen."""
        from localspec.tui.screens.models import ModelsScreen, Shelf

        shelf = Shelf(self.here, self.there, self.library.free_words, self.in_use, self.newest)
        self.newest = ""
        self.screen.app.push_screen(ModelsScreen(shelf, self.library, drafts_first=drafts_first), self.picked)

    def follow(self, item: Download) -> None:
        """A download has changed: the chat and the models screen show it."""
        from localspec.tui.screens.models import ModelsScreen

        self.library.downloads.follow(item)
        for screen in self.screen.app.screen_stack:
            if isinstance(screen, ModelsScreen):
                screen.follow()

    def list_anew(self, newest: str) -> None:
        """What is on the disk has changed; `newest` has come, if that is it."""
        from localspec.tui.screens.models import ModelsScreen

        opened = [screen for screen in self.screen.app.screen_stack if isinstance(screen, ModelsScreen)]
        self.newest = "" if opened else newest or self.newest
        for screen in opened:
            screen.disk.look_again([newest] if newest else [])
            screen.look()

    @property
    def in_use(self) -> Pick:
        return Pick(self.tuning.name, str(self.tuning.load.draft))

    def here(self) -> Iterable[Shelved]:
        """Yields the models on this machine as they are found. Reads the disk."""
        from localspec.runtime.local_models import on_disk  # imports psutil

        return on_disk(self.tuning.catalog, self.tuning.name, held_bytes=self.state.held_bytes, loaded=self.loaded)

    def there(self, repo: str) -> Iterable[Shelved]:
        """Yields those of a repository. Reads the disk."""
        from localspec.runtime.local_models import in_repository

        state, tuning = self.state, self.tuning
        return in_repository(tuning.catalog, repo, tuning.name, held_bytes=state.held_bytes, loaded=self.loaded)

    @property
    def loaded(self) -> str:
        """The format that the model is in now; "" for none."""
        state = self.state
        return state.model.quant if state.model is not None and state.phase not in AWAY else ""

    def picked(self, pick: Pick | None) -> None:
        """Loads the picked model, unless it is loaded and loading again would not help."""
        if pick == self.in_use and not self.state.can_reload:
            self.feedback.hint(IN_USE)
        elif pick is not None:
            self.choose(pick.model, pick.draft or None)

    def choose(self, model: str, draft: str | None = None) -> None:
        """Load another model, or another drafter, once it is known to be there."""
        look = partial(self.look_up, model, draft, self.feedback.command)
        self.screen.run_worker(look, thread=True, exit_on_error=False, group="choose")

    def look_up(self, model: str, draft: str | None, typed: str) -> None:
        """Runs in a thread."""
        try:
            choice = self.tuning.choice(model, draft)
        except LocalspecError as fault:
            self.screen.call_later(self.feedback.give_back, typed)
            self.feedback.warn(fault)
        else:
            self.screen.post_message(Chosen(choice))

    async def change(self, choice: Choice) -> None:
        """Load what was chosen; an answer that is being written ends here. The conversation goes on."""
        await self.turns.break_off()
        self.tuning.take(choice)
        self.speculation.forget()
        self.recorder.change(model_key=choice.name, preset=self.tuning.preset)
        self.state.header.clear()
        self.engine.load()

    async def unload(self) -> None:
        """Free what the engine holds. Nothing is lost: the next engine gets the whole conversation."""
        state = self.state
        if self.engine.feed is None or state.phase == "gone":
            self.feedback.hint("Nothing is loaded.")
        elif state.phase not in {"idle", "loading"}:
            stop_first = self.feedback.with_keys(STOP_FIRST)
            self.feedback.refuse(stop_first if state.answering else f"Not now: {state.status.state}")
        else:
            feed, self.engine.feed = self.engine.feed, None
            await self.turns.take_back()
            state.enter("unloaded", UNLOADED)
            await asyncio.to_thread(feed.engine.close)
