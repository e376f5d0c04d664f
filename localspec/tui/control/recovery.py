"""What can be loaded after all, when loading has failed: the model without its drafter, or the one before. Offers, and
loads what is chosen.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from localspec.core.errors import LocalspecError
from localspec.tui.control.models import Chosen, Models
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.picker import Picker
from localspec.tui.control.tuning import ModelChoice
from localspec.tui.screens.dialog import Dialog, DialogButton

PLAIN, BEFORE, OTHER = "plain", "before", "other"
STAYS = "The chat stays as it is. {reload} tries the same again."


class Recovery:
    """Asks once for each failed load, where something else than the same again may help."""

    def __init__(self, parts: ChatParts, models: Models, picker: Picker) -> None:
        self.screen, self.state, self.feedback, self.tuning = parts.screen, parts.state, parts.feedback, parts.tuning
        self.models, self.picker = models, picker

    def offer(self) -> None:
        """The engine is gone. A crash of one that was ready is not asked about: the same again may well help."""
        if self.state.exit_code and self.state.phase == "gone" and not self.tuning.server:
            look = partial(self.look_up, self.models.before)
            self.screen.run_worker(look, thread=True, exit_on_error=False, exclusive=True, group="recovery")

    def look_up(self, before: ModelChoice | None) -> None:
        """Finds out whether it may load without its drafter. Runs in a thread."""
        plain = self.plain() if self.has_draft_model() else None
        if plain is not None or before is not None:
            self.screen.call_later(self.ask, plain, before)

    def has_draft_model(self) -> bool:
        """Whether a model of its own was to draft, or what was to draft cannot."""
        load = self.tuning.load
        try:
            checked = self.tuning.choice(load.model, str(load.draft)).checked
        except LocalspecError:
            return load.draft != "off"
        return checked is not None and checked.draft.snapshot is not None

    def plain(self) -> ModelChoice | None:
        """The same model without a drafter; None where that cannot work either."""
        with suppress(LocalspecError):
            return self.tuning.choice(self.tuning.load.model, "off")
        return None

    def ask(self, plain: ModelChoice | None, before: ModelChoice | None) -> None:
        name = self.tuning.now.title
        replies = [
            *([DialogButton(PLAIN, f"Load {name} without a draft model")] if plain is not None else []),
            *([DialogButton(BEFORE, f"Load {before.title} again, as it was")] if before is not None else []),
            DialogButton(OTHER, "Choose another model"),
        ]
        if self.state.phase == "gone":
            dialog = Dialog(f"{name} is not loaded", [self.feedback.with_keys(STAYS)], replies)
            self.screen.app.push_screen(dialog, partial(self.answer, plain, before))

    def answer(self, plain: ModelChoice | None, before: ModelChoice | None, reply: str | None) -> None:
        chosen = {PLAIN: plain, BEFORE: before}.get(reply or "")
        if chosen is not None:
            self.screen.post_message(Chosen(chosen))
        elif reply == OTHER:
            self.picker.pick()
