"""The picker of model and drafter: two lists of what is on this machine. Knows no engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import Worker, WorkerState, get_current_worker

from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.history.text.columns import columns
from localspec.history.text.lists import model_name
from localspec.tui.keys.key_names import with_keys
from localspec.tui.screens.too_small import TooSmall

if TYPE_CHECKING:
    from localspec.runtime.local_models import Shelved

NOW = "●"
LOOKING = "Looking for models…"
PACE = 0.1  # seconds between what is shown while more is looked for
KEYS = "Enter chooses · Tab other list · {picker.close} closes"


@dataclass(frozen=True, slots=True)
class Pick:
    """The choice, as /model and /draft take it."""

    model: str
    draft: str


class Found(Message):
    """Models on this machine. `more`: there may be others."""

    def __init__(self, models: Sequence[Shelved], *, more: bool) -> None:
        super().__init__()
        self.models, self.more = models, more


class Picker(ModalScreen[Pick | None]):
    """`look` reads the disk, in a thread. `now` is loaded, and its row is marked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close", key_display="Esc", priority=True, id="picker.close")
    ]

    def __init__(self, look: Callable[[], Iterable[Shelved]], now: Pick, *, drafts_first: bool = False) -> None:
        super().__init__()
        self.look, self.now, self.drafts_first = look, now, drafts_first
        self.models: Sequence[Shelved] = ()
        self.drafts: list[str] = []
        self.model_list, self.draft_list = (OptionList(id=name, markup=False) for name in ("models", "drafts"))
        self.state = Static(LOOKING, markup=False)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title, dialog.border_subtitle = "Model", Content(with_keys(self, KEYS))
            yield self.state
            yield self.model_list
            yield Static("Its draft model", markup=False, classes="heading")
            yield self.draft_list
        yield TooSmall()

    def on_mount(self) -> None:
        self.model_list.focus()
        self.run_worker(self.search, thread=True, exit_on_error=False)

    def search(self) -> None:
        """Finds the models in a thread: it reads headers, of some files for long."""
        worker, shown_at = get_current_worker(), monotonic()
        found: list[Shelved] = []
        for model in self.look():
            found.append(model)
            if worker.is_cancelled:
                return
            if monotonic() - shown_at > PACE:
                self.post_message(Found(found, more=True))
                found, shown_at = [], monotonic()
        self.post_message(Found(found, more=False))

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Shows why the search failed."""
        if event.state is WorkerState.ERROR:
            self.state.update(one_line(f"The models on this machine cannot be listed: {event.worker.error}"))

    def on_found(self, message: Found) -> None:
        """Adds the models that were found; rows that are shown already stay, whichever is selected."""
        before, self.models = len(self.models), [*self.models, *message.models]
        self.state.update(LOOKING if message.more else "" if self.models else "No models were found on this machine.")
        self.state.display = message.more or not self.models
        lines = [Content(line) for line in self.lines()]
        for index, line in enumerate(lines[:before]):
            self.model_list.replace_option_prompt_at_index(index, line)
        self.model_list.add_options([Option(line) for line in lines[before:]])
        is_untouched = self.model_list.has_focus and self.model_list.highlighted == 0
        in_use_came = any(model.name == self.now.model for model in message.models)
        if (not before and self.models) or (is_untouched and in_use_came):
            self.begin()

    def begin(self) -> None:
        """Selects the model that is loaded, which is among the first; again, if it comes after others were shown."""
        names = [model.name for model in self.models]
        self.model_list.highlighted = names.index(self.now.model) if self.now.model in names else 0
        if self.drafts_first and self.now.model in names:
            self.draft_list.focus()

    def lines(self) -> list[str]:
        rows = [
            (
                NOW if model.name == self.now.model else " ",
                model_name(model.name),
                one_line(model.quant),
                size_words(model.num_bytes) if model.num_bytes else "–",
                one_line(model.fit),
            )
            for model in self.models
        ]
        return columns(rows, right={3}).splitlines() if rows else []

    @on(OptionList.OptionHighlighted, "#models")
    def show_drafts(self, event: OptionList.OptionHighlighted) -> None:
        """Shows the drafts for this model; one that was named by hand stays among them."""
        event.stop()
        model = self.models[event.option_index]
        found, given = dict(model.drafts), self.now.draft
        if model.name == self.now.model and given != "auto" and given not in found:
            found = {given: given, **found}
        self.drafts = list(found)
        marked = self.now.draft if model.name == self.now.model and self.now.draft in self.drafts else None
        marks = [NOW if name == marked else " " for name in self.drafts]
        lines = [f"{mark}  {one_line(words)}" for mark, words in zip(marks, found.values(), strict=True)]
        self.draft_list.set_options([Option(Content(line)) for line in lines])
        self.draft_list.highlighted = self.drafts.index(marked) if marked else 0

    @on(OptionList.OptionSelected, "#models")
    def choose_model(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.draft_list.focus()

    @on(OptionList.OptionSelected, "#drafts")
    def choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self.model_list.highlighted is not None:
            self.dismiss(Pick(self.models[self.model_list.highlighted].name, self.drafts[event.option_index]))
