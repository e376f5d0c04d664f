"""Settings of a running chat: how tokens are sampled, which model answers, who drafts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from textual.message import Message

from localspec.core.errors import LocalspecError, UsageError
from localspec.core.events import Notice, Ready
from localspec.core.requests import Template
from localspec.core.sanitize import one_line
from localspec.models import named_templates
from localspec.models.named_templates import CHOICES
from localspec.tui.chat.recorder import Told
from localspec.tui.control.chats import ChatsScreen
from localspec.tui.control.state import AWAY
from localspec.tui.control.tuning import Choice
from localspec.tui.screens.picker import Pick, Picker
from localspec.tui.screens.sampling_form import SamplingForm

if TYPE_CHECKING:
    from localspec.runtime.local_models import Shelved

NO_TEMPLATE = Notice(
    "info",
    "no_template",
    "This is a base model (no chat template): it continues the text.",
    "/template chatml overrides.",
)


IN_USE = "Nothing changes: this model and this drafter are in use."


def template_words(template: Template | None) -> str:
    return one_line(template.name) if template else "auto, the model's own"


class Chosen(Message):
    """A model that is there is to be loaded."""

    def __init__(self, choice: Choice) -> None:
        super().__init__()
        self.choice = choice


class TunableScreen(ChatsScreen):
    """Changes hold from the next question on; another model is loaded at once."""

    def command_set(self, argument: str) -> None:
        if argument:
            self.tune(lambda: self.tuning.set(argument))
        else:
            self.app.push_screen(SamplingForm(self.tuning), self.form_closed)

    def form_closed(self, applied: bool | None) -> None:
        if applied:
            self.tuned()

    def command_preset(self, argument: str) -> None:
        if argument:
            self.tune(lambda: self.tuning.use_preset(argument))
        else:
            self.status.give_hint(f"Presets: {one_line(', '.join(self.tuning.config.all_presets))}")

    def tune(self, change: Callable[[], None]) -> None:
        """A change of how tokens are chosen."""
        try:
            change()
        except UsageError as fault:
            self.refuse(str(fault))
        else:
            self.tuned()

    def tuned(self) -> None:
        self.scribe.change(preset=self.tuning.preset)
        self.show_info()
        self.status.give_hint(f"From the next question on: {one_line(self.tuning.words)}")

    def command_template(self, argument: str) -> None:
        if argument:
            look = partial(self.look_for_template, argument, self.obeyed)
            self.run_worker(look, thread=True, exit_on_error=False, group="choose")
        else:
            self.status.give_hint(f"Template: {template_words(self.tuning.template)}. There are: {', '.join(CHOICES)}.")

    def look_for_template(self, name: str, typed: str) -> None:
        """In a thread."""
        try:
            found = named_templates.find(name)
        except LocalspecError as fault:
            self.call_later(self.refuse_template, typed, fault)
        else:
            self.call_later(self.use_template, found)

    def refuse_template(self, typed: str, fault: LocalspecError) -> None:
        self.give_back(typed)
        self.status.give_hint(one_line(str(fault)))

    def use_template(self, template: Template | None) -> None:
        self.tuning.template = template
        if self.spec is not None:
            self.show_spec(self.spec)
        self.status.give_hint(f"From the next question on: template {template_words(template)}.")

    async def welcome_engine(self, ready: Ready) -> None:
        """A base model continues what is written, until somebody names a template."""
        if not ready.model.chat and self.tuning.template is None:
            self.tuning.template = named_templates.COMPLETION
            await self.inform(NO_TEMPLATE)
        await super().welcome_engine(ready)

    def command_model(self, argument: str) -> None:
        self.choose(argument) if argument else self.action_models()

    def command_draft(self, argument: str) -> None:
        self.choose(self.tuning.load.model, argument) if argument else self.action_models(drafts_first=True)

    def action_models(self, *, drafts_first: bool = False) -> None:
        self.app.push_screen(Picker(self.models_here, self.in_use, drafts_first=drafts_first), self.picked)

    @property
    def in_use(self) -> Pick:
        return Pick(self.tuning.name, str(self.tuning.load.draft))

    def models_here(self) -> Iterable[Shelved]:
        """Those on this machine, while they are found. Reads the disk."""
        from localspec.runtime.local_models import on_disk  # imports psutil

        loaded = self.model.quant if self.model is not None and self.phase not in AWAY else ""
        return on_disk(self.tuning.catalog, self.tuning.name, held_bytes=self.held_bytes, loaded=loaded)

    def picked(self, pick: Pick | None) -> None:
        """What is loaded is not loaded again, unless that would help."""
        if pick == self.in_use and not self.can_reload:
            self.status.give_hint(IN_USE)
        elif pick is not None:
            self.choose(pick.model, pick.draft)

    def choose(self, model: str, draft: str | None = None) -> None:
        """Load another model, or another drafter, once it is known to be there."""
        look = partial(self.look_up, model, draft, self.obeyed)
        self.run_worker(look, thread=True, exit_on_error=False, group="choose")

    def look_up(self, model: str, draft: str | None, typed: str) -> None:
        try:
            choice = self.tuning.choice(model, draft)
        except LocalspecError as fault:
            self.call_later(self.give_back, typed)
            self.post_message(Told(Notice("warning", fault.code, fault.message, fault.hint)))
        else:
            self.post_message(Chosen(choice))

    async def on_chosen(self, message: Chosen) -> None:
        await self.change_model(message.choice)
