"""What there is to load: the models screen, and the weight formats of one model. Loads nothing itself."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from localspec.core.errors import LocalspecError
from localspec.core.sanitize import one_line
from localspec.core.weight_formats import AUTO, LISTED
from localspec.tui.control.commands import COMMANDS
from localspec.tui.control.library import Library
from localspec.tui.control.models import IN_USE, Models
from localspec.tui.control.parts import ChatParts
from localspec.tui.panels.disk_tab import ModelPick

if TYPE_CHECKING:
    from localspec.hub.queue import Download
    from localspec.runtime.local_models import ListedModel
    from localspec.tui.control.formats import FormatList

NO_FORMAT = "There is no weight format {name}. Formats: {all}"


class Picker:
    """Opens the models screen, keeps it up to date while it is open, and hands what is picked to `Models`."""

    def __init__(self, parts: ChatParts, models: Models, library: Library) -> None:
        self.screen, self.state, self.feedback, self.tuning = parts.screen, parts.state, parts.feedback, parts.tuning
        self.models, self.library = models, library
        self.newest = ""  # the last that was downloaded, until the models are looked at
        library.listed_anew = self.list_anew

    # --- the models screen

    def model(self, argument: str) -> None:
        """/model"""
        self.models.choose(argument) if argument else self.pick()

    def pick(self, *, drafts_first: bool = False) -> None:
        """Opens the models screen."""
        if self.tuning.server:
            self.feedback.refuse(COMMANDS["model"].lack(self.tuning.server))
            return
        from localspec.tui.screens.models import ModelLists, ModelsScreen

        lists = ModelLists(self.here, self.there, self.library.free_words, self.formats, self.in_use, self.newest)
        self.newest = ""
        self.screen.app.push_screen(ModelsScreen(lists, self.library, drafts_first=drafts_first), self.picked)

    def picked(self, pick: ModelPick | None) -> None:
        """Loads the picked model, unless it is loaded and loading again would not help."""
        if pick == self.in_use and not self.state.can_reload:
            self.feedback.hint(IN_USE)
        elif pick is not None:
            self.models.choose(pick.model, pick.draft or None, pick.quant)

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
            screen.look_at_free()

    # --- what it lists

    @property
    def in_use(self) -> ModelPick:
        return ModelPick(self.tuning.name, str(self.tuning.load.draft))

    @property
    def loaded(self) -> str:
        """The format that the model is in now; "" for none."""
        return self.state.model.quant if self.state.model is not None and self.models.is_there else ""

    def here(self) -> Iterable[ListedModel]:
        """Yields the models on this machine as they are found. Reads the disk."""
        from localspec.runtime.local_models import on_disk  # imports psutil

        return on_disk(self.tuning.catalog, self.tuning.name, held_bytes=self.state.held_bytes, loaded=self.loaded)

    def there(self, repo: str) -> Iterable[ListedModel]:
        """Yields those of a repository. Reads the disk."""
        from localspec.runtime.local_models import in_repository

        state, tuning = self.state, self.tuning
        return in_repository(tuning.catalog, repo, tuning.name, held_bytes=state.held_bytes, loaded=self.loaded)

    # --- weight formats

    def quant(self, argument: str) -> None:
        """/quant"""
        if argument in (AUTO, *LISTED):
            self.models.choose(self.tuning.load.model, str(self.tuning.load.draft), argument)
        elif argument:
            self.feedback.refuse(NO_FORMAT.format(name=one_line(argument)[:20], all=", ".join((AUTO, *LISTED))))
        else:
            look = partial(self.list_formats, self.feedback.command)
            self.screen.run_worker(look, thread=True, exit_on_error=False, exclusive=True, group="formats")

    def list_formats(self, typed: str) -> None:
        """Runs in a thread."""
        from localspec.tui.control.formats import as_text  # imports psutil

        try:
            text = as_text(self.formats())
        except LocalspecError as fault:
            self.screen.call_later(self.feedback.give_back, typed)
            self.feedback.warn(fault)
        else:
            self.screen.call_later(self.feedback.note, text)

    def formats(self, model: str = "") -> FormatList:
        """The weight formats of a model on this machine, by default of the present one. Reads its headers."""
        from localspec.tui.control.formats import formats_of  # imports psutil

        tuning, held, gpu = self.tuning, self.state.held_bytes, self.state.gpu_bytes
        is_now = model in ("", tuning.name, tuning.load.model)
        load = tuning.load if is_now else tuning.request(model)
        return formats_of(load, self.loaded if is_now else "", held_bytes=held, gpu_bytes=gpu)
