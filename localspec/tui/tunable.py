"""Settings of a running chat: how tokens are sampled, which model answers, who drafts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual.message import Message

from localspec.errors import LocalspecError, UsageError
from localspec.events import Notice
from localspec.sanitize import one_line
from localspec.tui.chats import ChatsScreen
from localspec.tui.picker import Pick, Picker
from localspec.tui.sampling_form import SamplingForm
from localspec.tui.scribe import Told
from localspec.tui.tuning import Choice


class Chosen(Message):
    """A model that is there is to be loaded."""

    def __init__(self, choice: Choice) -> None:
        super().__init__()
        self.choice = choice


class TunableScreen(ChatsScreen):
    """Changes hold from the next question on; another model is loaded at once."""

    def command_set(self, argument: str) -> None:
        if argument:
            self.tune(lambda: self.tuning.set(argument), f"/set {argument}")
        else:
            self.app.push_screen(SamplingForm(self.tuning), self.form_closed)

    def form_closed(self, applied: bool | None) -> None:
        if applied:
            self.tuned()

    def command_preset(self, argument: str) -> None:
        if argument:
            self.tune(lambda: self.tuning.use_preset(argument), f"/preset {argument}")
        else:
            self.status.give_hint(f"Presets: {one_line(', '.join(self.tuning.config.all_presets))}")

    def tune(self, change: Callable[[], None], typed: str) -> None:
        """A change of how tokens are chosen; what cannot be goes back into the prompt."""
        try:
            change()
        except UsageError as fault:
            self.prompt.give(typed)
            self.status.give_hint(one_line(str(fault)))
        else:
            self.tuned()

    def tuned(self) -> None:
        self.scribe.change(preset=self.tuning.preset)
        self.status.give_hint(f"From the next question on: {one_line(self.tuning.words)}")

    def command_model(self, argument: str) -> None:
        self.choose(argument) if argument else self.action_models()

    def command_draft(self, argument: str) -> None:
        self.choose(self.tuning.load.model, argument) if argument else self.action_models(drafts_first=True)

    def action_models(self, *, drafts_first: bool = False) -> None:
        from localspec.local_models import on_disk  # imports psutil

        stats, tuning = self.tally.stats, self.tuning
        held = stats.target_bytes + stats.drafter_bytes + stats.kv_bytes
        look = partial(on_disk, tuning.catalog, tuning.name, held_bytes=held)
        now = Pick(tuning.name, str(tuning.load.draft))
        self.app.push_screen(Picker(look, now, drafts_first=drafts_first), self.picked)

    def picked(self, pick: Pick | None) -> None:
        if pick is not None:
            self.choose(pick.model, pick.draft)

    def choose(self, model: str, draft: str | None = None) -> None:
        """Load another model, or another drafter, once it is known to be there."""
        self.run_worker(partial(self.look_up, model, draft), thread=True, exit_on_error=False, group="choose")

    def look_up(self, model: str, draft: str | None) -> None:
        try:
            choice = self.tuning.choice(model, draft)
        except LocalspecError as fault:
            self.post_message(Told(Notice("warning", fault.code, fault.message, fault.hint)))
        else:
            self.post_message(Chosen(choice))

    async def on_chosen(self, message: Chosen) -> None:
        await self.change_model(message.choice)
