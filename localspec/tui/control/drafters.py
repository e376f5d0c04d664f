"""The page of what drafts for the loaded model, or could: opened by /draft and /why, and by the switch where nothing
drafts."""

from __future__ import annotations

from functools import partial

from localspec.core.errors import LocalspecError
from localspec.core.events import Stats
from localspec.core.sanitize import one_line
from localspec.engine.drafters.table import spelling
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.draft_choice import TURNED_OFF
from localspec.tui.chat.draft_length import drafting, why_off
from localspec.tui.control.commands import COMMANDS
from localspec.tui.control.models import IN_USE, Models
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.picker import Picker
from localspec.tui.control.speculation import Speculation
from localspec.tui.screens.drafters import DraftersScreen

NOT_YET = "The model is not loaded yet."
NONE_KNOWN = "No draft model is known for it, so it runs at its normal speed."
SENTENCES = {"": NONE_KNOWN, TURNED_OFF: "Speculation is off: you turned it off."}


class Drafters:
    """Looks in a thread, and shows what is found as it is found."""

    def __init__(self, parts: ChatParts, models: Models, picker: Picker, speculation: Speculation) -> None:
        self.screen, self.state, self.feedback, self.tuning = parts.screen, parts.state, parts.feedback, parts.tuning
        self.models, self.picker, self.speculation = models, picker, speculation

    def switch(self) -> None:
        """The key of speculation: switches it, or shows what could draft where nothing does."""
        spec = self.state.spec
        if spec is not None and spec.kind == "off" and not self.state.drafter_failed:
            if self.tuning.server:
                self.feedback.refuse(COMMANDS["draft"].lack(self.tuning.server))
            else:
                self.show()
        else:
            self.speculation.toggle()

    def draft(self, typed: str) -> None:
        """/draft: loads what is named; without a name, shows what could draft."""
        if typed:
            self.models.choose(self.tuning.load.model, typed)
        else:
            self.show()

    def show(self) -> None:
        """/why"""
        model = self.state.model
        if model is None or self.state.spec is None:
            self.feedback.hint(NOT_YET)
            return
        now = spelling(self.state.spec), self.state.tally.stats
        title = f"Drafters for {one_line(model.name)}"
        page = DraftersScreen(title, self.now(), self.state.prompt.write_on, in_use=now[0])
        self.screen.app.push_screen(page, self.chosen)
        look = partial(self.look, page, self.tuning.load.model, model.quant, now)
        self.screen.run_worker(look, thread=True, exit_on_error=False, group="drafters", exclusive=True)

    def now(self) -> str:
        """What drafts at present, or why nothing does."""
        spec = self.state.spec
        assert spec is not None
        if spec.kind != "off":
            pauses = f" ({why})" if (why := why_off(spec, self.state.own_rounds)) else ""
            return f"Now: {drafting(spec, self.state.own_rounds)}{pauses}"
        return SENTENCES.get(spec.reason) or f"Nothing drafts: {one_line(spec.reason)}."

    def look(self, page: DraftersScreen, name: str, quant: str, now: tuple[str | None, Stats]) -> None:
        """Runs in a thread. `now`: what drafts at present, and the figures of the last answer."""
        from localspec.runtime.prospects import FITTING, prospects, with_current

        call, catalog = self.screen.app.call_from_thread, self.tuning.catalog
        try:
            entry = catalog.resolve(name)
            target = open_snapshot(entry.path, entry.key)
            for one in prospects(entry, target, catalog, quant):
                if not page.is_running:  # it was closed
                    return
                call(page.add, with_current(one, *now))
            note = FITTING
        except LocalspecError as fault:
            note = self.feedback.words(str(fault))
        if page.is_running:
            call(page.end, note)

    def chosen(self, found: object) -> None:
        """Loads the chosen drafter; what is not here is found in the models screen."""
        from localspec.runtime.prospects import Prospect

        now = spelling(self.state.spec) if self.state.spec is not None else None
        if isinstance(found, Prospect) and found.draft == now:
            self.feedback.hint(IN_USE)
        elif isinstance(found, Prospect) and not found.missing:
            self.models.choose(self.tuning.load.model, found.draft)
        elif found is not None:
            self.picker.pick(drafts_first=True)
