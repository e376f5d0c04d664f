"""The models on this machine and each one's drafters: two lists. Knows no engine and no hub."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from time import monotonic
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import Worker, WorkerState, get_current_worker

from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.history.text.columns import GAP, cells, columns, cut, fitted
from localspec.history.text.lists import model_name
from localspec.models.hub_cache import SHORT_COMMIT
from localspec.tui.panels.key_lists import KeyList, ModelList

if TYPE_CHECKING:
    from localspec.runtime.local_models import ListedModel

NOW = "●"
LOOKING = "Looking for models…"
NONE_FOUND = "No models were found on this machine."
PACE = 0.1  # seconds between what is shown while more is looked for
WIDE = 100  # columns from which origin and last use have their own
LEAST_NAME, LEAST_OTHER, AROUND = 10, 12, 7  # columns: of a name, of an origin or a last use, and of mark and edges
STAYING = 3  # columns that stay whole: format, size and fit


@dataclass(frozen=True, slots=True)
class ModelPick:
    """The choice, as /model, /draft and /quant take it; `draft` "" is the model's usual one, and `quant` "" its
    format."""

    model: str
    draft: str
    quant: str = ""


class ModelsFound(Message):
    """Models on this machine. `more`: there may be others. `all_of_them`: in place of those of an older look."""

    def __init__(self, models: Sequence[ListedModel], *, more: bool, all_of_them: bool = False) -> None:
        super().__init__()
        self.models, self.more, self.all_of_them = models, more, all_of_them


class OnDisk(Vertical):
    """`look` reads the disk, in a thread, and `look_at` no more of it than a repository, for what has just come.
    `now` is loaded, and its row is marked."""

    class Picked(Message):
        def __init__(self, pick: ModelPick) -> None:
            super().__init__()
            self.pick = pick

    class Wanted(Message):
        """A key was pressed at a model."""

        def __init__(self, what: str, model: ListedModel) -> None:
            super().__init__()
            self.what, self.model = what, model

    class Listed(Message):
        """How many there are, now."""

    def __init__(
        self,
        look: Callable[[], Iterable[ListedModel]],
        look_at: Callable[[str], Iterable[ListedModel]],
        now: ModelPick,
        *,
        drafts_first: bool = False,
        chosen: str = "",
    ) -> None:
        super().__init__(id="disk")
        self.look, self.look_at, self.now, self.drafts_first = look, look_at, now, drafts_first
        self.newest: Sequence[str] = [chosen] if chosen else []
        self.models: Sequence[ListedModel] = ()
        self.drafts: list[str] = []
        self.model_list = ModelList(id="models", markup=False)
        self.draft_list = OptionList(id="drafts", markup=False)
        self.state = Static(LOOKING, markup=False)
        self.detail, self.leftovers = (Static(markup=False, classes=name) for name in ("detail", "leftovers"))
        self.unlisted = Static(markup=False, classes="leftovers")
        self.leftovers.display = self.unlisted.display = False
        self.is_complete = False  # whether all models are listed
        self.chosen = chosen or now.model  # the one to be selected when it comes
        self.detailed = ""  # the one whose drafters are shown

    def compose(self) -> ComposeResult:
        yield from (self.state, self.model_list, self.leftovers, self.unlisted, self.detail)
        yield Static("Its draft model", markup=False, classes="heading")
        yield self.draft_list

    def on_mount(self) -> None:
        self.run_worker(self.search, thread=True, exit_on_error=False, group="look")

    def open(self) -> None:
        self.model_list.focus()

    def look_again(self, newest: Sequence[str] = ()) -> None:
        """Read the disk anew, the `newest` repositories first. The cursor stays on its model, and so does the focus."""
        self.newest = newest
        self.chosen = self.model.name if self.model else self.chosen
        self.run_worker(self.search_again, thread=True, exit_on_error=False, exclusive=True, group="look")

    def search(self) -> None:
        """Finds the models in a thread: it reads headers, of some files for long."""
        worker, shown_at = get_current_worker(), monotonic()
        found: list[ListedModel] = []
        self.show_newest(more=True)
        for model in self.look():
            found.append(model)
            if worker.is_cancelled:
                return
            if monotonic() - shown_at > PACE:
                self.post_message(ModelsFound(found, more=True))
                found, shown_at = [], monotonic()
        self.post_message(ModelsFound(found, more=False))

    def show_newest(self, *, more: bool) -> None:
        """Shows these before any header of another model is read. Runs in a thread."""
        for repo in self.newest:
            if models := [*self.look_at(repo)]:
                self.post_message(ModelsFound(models, more=more))

    def search_again(self) -> None:
        """Runs in a thread. What is shown stays until all is known."""
        worker = get_current_worker()
        self.show_newest(more=False)
        found = [model for model in self.look() if not worker.is_cancelled]
        if not worker.is_cancelled:
            self.post_message(ModelsFound(found, more=False, all_of_them=True))

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Shows why the search failed."""
        if event.state is WorkerState.ERROR:
            self.state.update(one_line(f"The models on this machine cannot be listed: {event.worker.error}"))

    def on_models_found(self, message: ModelsFound) -> None:
        """Adds the models that were found, and takes what is new of those that are shown; their rows stay, whichever is
        selected."""
        message.stop()
        if message.all_of_them:
            self.replace_all(message.models)
            return
        fresh = {model.name: model for model in message.models}
        before, shown = len(self.models), [fresh.pop(model.name, model) for model in self.models]
        self.models = [*shown, *fresh.values()]
        self.show_state(more=message.more)
        lines = [Content(line) for line in self.lines()]
        for index, line in enumerate(lines[:before]):
            self.model_list.replace_option_prompt_at_index(index, line)
        self.model_list.add_options([Option(line) for line in lines[before:]])
        is_untouched = self.model_list.has_focus and self.model_list.highlighted == 0
        chosen_came = any(map(self.is_chosen, message.models))
        if (not before and self.models) or (is_untouched and chosen_came):
            self.begin()

    def replace_all(self, models: Sequence[ListedModel]) -> None:
        """The drafters stay as they are where the cursor stays on its model."""
        self.models = models
        self.show_state(more=False)
        self.model_list.set_options([Option(Content(line)) for line in self.lines()])
        if models:
            self.begin()

    def say(self, words: str) -> None:
        """A line over the list; "" for none."""
        self.state.update(Content(words))
        self.state.display = bool(words)

    def show_leftovers(self, words: str) -> None:
        self.leftovers.update(Content(words))
        self.leftovers.display = bool(words)

    def show_unlisted(self, words: str) -> None:
        self.unlisted.update(Content(words))
        self.unlisted.display = bool(words)

    def show_state(self, *, more: bool) -> None:
        self.is_complete = not more
        self.say(LOOKING if more else "" if self.models else NONE_FOUND)
        self.post_message(self.Listed())

    def begin(self) -> None:
        """Selects the model that is loaded, which is among the first; again, if it comes after others were shown."""
        chosen = [index for index, model in enumerate(self.models) if self.is_chosen(model)]
        self.model_list.highlighted = chosen[0] if chosen else 0
        if self.drafts_first and chosen:
            self.drafts_first = False
            self.draft_list.focus()

    def is_chosen(self, model: ListedModel) -> bool:
        """Whether it is the one that is wanted: the catalogue may have another name for a repository."""
        return self.chosen in (model.name, model.origin.repo)

    @property
    def model(self) -> ListedModel | None:
        """The one under the cursor."""
        index = self.model_list.highlighted
        return self.models[index] if index is not None and index < len(self.models) else None

    def on_resize(self) -> None:
        for index, line in enumerate(self.lines()):
            self.model_list.replace_option_prompt_at_index(index, Content(line))

    def lines(self) -> list[str]:
        wide = self.app.size.width >= WIDE
        rows = [self.row(model, wide=wide) for model in self.models]
        if not rows:
            return []
        _, names, *others = [max(map(cells, column)) for column in zip(*rows, strict=True)]
        left = self.app.size.width - AROUND - sum(width + len(GAP) for width in others[:STAYING])
        name = max(LEAST_NAME, min(names, left))
        shares = [*others[:STAYING], *fitted(others[STAYING:], left - name, LEAST_OTHER)]
        texts = [[cut(text, share) for text, share in zip(more, shares, strict=True) if share] for _, _, *more in rows]
        shown = [(mark, short_name(full, name), *more) for (mark, full, *_), more in zip(rows, texts, strict=True)]
        return columns(shown, right={3}).splitlines()

    def row(self, model: ListedModel, *, wide: bool) -> tuple[str, ...]:
        first = NOW if model.name == self.now.model else " ", one_line(model.name), one_line(model.quant)
        size = size_words(model.num_bytes) if model.num_bytes else "–"
        more = (come_from(model), last_use(model)) if wide else ()
        return (*first, size, one_line(model.fit), *more)

    @on(OptionList.OptionHighlighted, "#models")
    def follow(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        model = self.models[event.option_index]
        if model.name != self.detailed:
            self.detailed = model.name
            self.show_drafts(model)
        self.detail.update(" · ".join(filter(None, (one_line(model.name), come_from(model), last_use(model)))))

    def show_drafts(self, model: ListedModel) -> None:
        """Shows the drafts for this model; one that was named by hand stays among them."""
        found, given = dict(model.drafts), self.now.draft
        if model.name == self.now.model and given != "auto" and given not in found:
            found = {given: given, **found}
        self.drafts = list(found)
        marked = self.now.draft if model.name == self.now.model and self.now.draft in self.drafts else None
        marks = [NOW if name == marked else " " for name in self.drafts]
        words = map(drafter_words, found.items())
        lines = [f"{mark}  {one_line(each)}" for mark, each in zip(marks, words, strict=True)]
        self.draft_list.set_options([Option(Content(line)) for line in lines])
        self.draft_list.highlighted = self.drafts.index(marked) if marked else 0

    @on(OptionList.OptionSelected, "#models")
    def choose_model(self, event: OptionList.OptionSelected) -> None:
        """Load it with its usual drafter; of the one in use that is the one in use."""
        event.stop()
        if self.model is not None:
            is_now = self.model.name == self.now.model
            self.post_message(self.Picked(self.now if is_now else ModelPick(self.model.name, "")))

    @on(OptionList.OptionSelected, "#drafts")
    def choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self.model is not None:
            self.post_message(self.Picked(ModelPick(self.model.name, self.drafts[event.option_index])))

    @on(KeyList.Wanted)
    def want(self, message: KeyList.Wanted) -> None:
        message.stop()
        if self.model is not None:
            self.post_message(self.Wanted(message.what, self.model))


def short_name(full: str, width: int) -> str:
    """The name as it fits; of a path that does not, its last part."""
    is_path = full.startswith(("/", "~", ".")) and cells(full) > width
    return model_name(PurePath(full).name if is_path else full, width)


def drafter_words(found: tuple[str, str]) -> str:
    """A drafter by its name, with what it does where its name does not say so."""
    name, words = found
    return words if name == words else f"{name}: {words}"


def come_from(model: ListedModel) -> str:
    commit = model.origin.commit[:SHORT_COMMIT]
    return one_line(f"{model.origin.words} @{commit}" if commit else model.origin.words)


def last_use(model: ListedModel) -> str:
    """How long ago a chat had it."""
    try:
        days = (datetime.now().astimezone() - datetime.fromisoformat(model.used_at).astimezone()).days
    except (ValueError, OverflowError, OSError):
        return ""
    return "used today" if days <= 0 else "used yesterday" if days == 1 else f"used {days} days ago"
