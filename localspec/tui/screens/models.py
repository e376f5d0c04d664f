"""The models screen: what is on this machine, what the hub has, what is being downloaded. Knows no engine.

What a key does beyond its own lists is the opener's: it hears what the tabs say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import get_current_worker

from localspec.models import hub_cache
from localspec.tui.control.downloads import Planned
from localspec.tui.control.library import Library
from localspec.tui.keys.key_names import keys_of, with_keys
from localspec.tui.keys.models_keys import SCREEN_KEYS
from localspec.tui.panels.disk_tab import ModelPick, OnDisk
from localspec.tui.panels.downloads_tab import DownloadsTab
from localspec.tui.panels.hub_tab import HubTab
from localspec.tui.panels.tab_strip import TABS, Tab, TabCounts, TabStrip
from localspec.tui.screens.dialog import Dialog, DialogButton
from localspec.tui.screens.dismissal import DismissedOnce
from localspec.tui.screens.size_notice import TooSmall

if TYPE_CHECKING:
    from localspec.runtime.local_models import ListedModel
    from localspec.tui.control.formats import FormatList

FREE_SECONDS = 3.0  # between two looks at what memory and disk are free: other programs take some, too
LOOK_SECONDS = 0.5  # between two looks at what Hugging Face's cache holds: another program may fetch, too
Contents = dict[str, frozenset[tuple[str, int]]]
KEYS: dict[Tab | Literal["drafts", "words"], str] = {
    "disk": "Enter loads · Tab drafters · {disk.formats} formats · {models.close} closes · {disk.delete} delete "
    "· {disk.verify} verify",
    "drafts": "Enter loads the model with this drafter · Tab models · {models.close} closes",
    "words": "Enter searches · Tab ↓ list · {models.close} closes · in the list {models.disk} {models.downloads} "
    "other tabs",
    "hub": "Enter download · {hub.drafter} + drafter · {models.close} closes · {hub.licence} licence · {hub.page} page "
    "· {hub.search} search",
    "downloads": "{downloads.pause} pause, go on · {downloads.retry} now · {models.close} closes "
    "· {downloads.drop} drop · {downloads.up} {downloads.down} move",
}


@dataclass(frozen=True, slots=True)
class ModelLists:
    """What the screen is opened with. `look` lists the models on this machine, `look_at` those of a repository,
    `formats` the weight formats of one, and `free` says in words what memory and disk are free: all read, in a thread.
    `now` is loaded; `chosen` is listed and selected at first, if it is there."""

    look: Callable[[], Iterable[ListedModel]]
    look_at: Callable[[str], Iterable[ListedModel]]
    free: Callable[[], str]
    formats: Callable[[str], FormatList]
    now: ModelPick
    chosen: str = ""


class ModelsScreen(DismissedOnce, Screen[ModelPick | None]):
    """The model and drafter to load, if any."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = SCREEN_KEYS

    def __init__(self, lists: ModelLists, library: Library, *, drafts_first: bool = False) -> None:
        super().__init__()
        self.lists, self.library = lists, library
        self.strip = TabStrip()
        self.disk = OnDisk(lists.look, lists.look_at, lists.now, drafts_first=drafts_first, chosen=lists.chosen)
        self.hub, self.downloads = HubTab(library.downloads.queue), DownloadsTab(library.downloads.queue)
        self.keys = Static(markup=False, id="tab-keys")
        self.here: Contents | None = None

    def compose(self) -> ComposeResult:
        yield from (self.strip, self.disk, self.hub, self.downloads, self.keys, TooSmall())

    def on_mount(self) -> None:
        self.action_open("disk")
        self.follow()
        self.look_at_free()
        self.look()
        self.set_interval(LOOK_SECONDS, self.look)
        self.set_interval(FREE_SECONDS, self.renew_free)

    # --- tabs

    def action_open(self, name: Tab) -> None:
        self.strip.tab = name
        for tab in TABS:
            self.query_one(f"#{tab}").display = tab == name
        self.show_keys()
        {"disk": self.disk.open, "hub": self.hub.open, "downloads": self.downloads.open}[name]()

    def on_descendant_focus(self) -> None:
        self.show_keys()

    def show_keys(self) -> None:
        """The keys of the tab, or of its other list or the line that is written in."""
        shown: Tab | Literal["drafts", "words"] = self.strip.tab
        if shown == "hub" and self.hub.words.has_focus:
            shown = "words"
        elif shown == "disk" and self.disk.draft_list.has_focus:
            shown = "drafts"
        self.keys.update(Content(with_keys(self, KEYS[shown])))

    def action_turn(self, by: int) -> None:
        self.action_open(TABS[(TABS.index(self.strip.tab) + by) % len(TABS)])

    def on_tab_strip_chosen(self, message: TabStrip.Chosen) -> None:
        self.action_open(message.tab)

    def action_close(self) -> None:
        self.dismiss(None)

    def on_key(self, event: events.Key) -> None:
        """The chat's key for help is this screen's, too."""
        if event.key in keys_of(self, "help"):
            from localspec.tui.screens.help import HelpScreen, active_keys

            event.stop()
            self.app.push_screen(HelpScreen(active_keys(self)))

    # --- what changes while it is open

    def follow(self) -> None:
        """The queue has changed."""
        self.downloads.follow()
        self.hub.follow()
        self.count()

    @on(OnDisk.Listed)
    def count(self) -> None:
        self.strip.counts = TabCounts(len(self.disk.models), len(self.library.downloads.queue.unfinished))

    @on(OnDisk.Listed)
    def look_at_unlisted(self) -> None:
        """Show what versions take that the list does not have."""
        if self.disk.is_complete:
            listed = frozenset((one.origin.repo, one.origin.commit) for one in self.disk.models)
            read = partial(self.read_unlisted, listed)
            self.run_worker(read, thread=True, exit_on_error=False, exclusive=True, group="unlisted")

    def read_unlisted(self, listed: frozenset[tuple[str, str]]) -> None:
        """Runs in a thread."""
        worker, words = get_current_worker(), self.library.unlisted_words(listed)
        if not worker.is_cancelled:
            self.app.call_from_thread(self.disk.show_unlisted, words)

    def look_at_free(self) -> None:
        """Show what memory and disk are free now, and what is left over."""
        self.run_worker(self.read_free, thread=True, exit_on_error=False, exclusive=True, group="free")

    def read_free(self) -> None:
        """Runs in a thread."""
        worker = get_current_worker()
        free, leftovers = self.lists.free(), self.library.find_leftovers().words
        if not worker.is_cancelled:
            self.app.call_from_thread(self.show_free, free, leftovers)

    def show_free(self, free: str, leftovers: str) -> None:
        self.strip.free = free
        self.disk.show_leftovers(with_keys(self, f"{{disk.clean}} deletes {leftovers}") if leftovers else "")

    def renew_free(self) -> None:
        """Show what memory and disk are free now."""
        self.run_worker(self.read_free_alone, thread=True, exit_on_error=False, exclusive=True, group="free now")

    def read_free_alone(self) -> None:
        """Runs in a thread."""
        worker, free = get_current_worker(), self.lists.free()
        if not worker.is_cancelled:
            self.app.call_from_thread(setattr, self.strip, "free", free)

    def look(self) -> None:
        """See whether another program has fetched a model."""
        self.run_worker(self.look_at_disk, thread=True, exit_on_error=False, exclusive=True, group="watch")

    def look_at_disk(self) -> None:
        """Runs in a thread."""
        before, here = self.here, hub_cache.contents()
        if here != before:
            self.app.call_from_thread(self.take_here, here, hub_cache.repositories())

    def take_here(self, here: Contents, repos: list[str]) -> None:
        """What Hugging Face's cache holds has changed, or is known for the first time: a model, a version or a file of
        one."""
        before, self.here = self.here, here
        self.hub.take_here(repos)
        if before is not None:
            self.look_at_free()
            self.disk.look_again([repo for repo in repos if here.get(repo) != before.get(repo)])

    # --- what is wanted

    def on_on_disk_picked(self, message: OnDisk.Picked) -> None:
        self.dismiss(message.pick)

    def on_on_disk_wanted(self, message: OnDisk.Wanted) -> None:
        if message.what == "clean":
            self.library.delete_leftovers()
        elif message.what == "delete":
            self.library.delete(message.model)
        elif message.what == "formats":
            self.library.work(partial(self.look_at_formats, message.model))
        else:
            self.library.verify(message.model, self.disk.say)

    def look_at_formats(self, model: ListedModel) -> None:
        """Runs in a thread."""
        self.app.call_from_thread(self.ask_format, model, self.lists.formats(model.name))

    def ask_format(self, model: ListedModel, found: FormatList) -> None:
        """Which weight format to load the model in; with the drafter in use, if it is the one in use."""
        lines, names = found.lines(), [one.quant for one in found.report.formats]
        replies = [DialogButton(name, line) for name, line in zip(names, lines, strict=True)]
        draft = self.lists.now.draft if model.name == self.lists.now.model else ""
        dialog = Dialog(f"Load {model.name} in which format?", [found.head], replies)
        self.app.push_screen(dialog, partial(self.pick_format, model.name, draft))

    def pick_format(self, model: str, draft: str, quant: str | None) -> None:
        if quant:
            self.dismiss(ModelPick(model, draft, quant))

    def on_hub_tab_planned(self, message: HubTab.Planned) -> None:
        load = partial(self.load, message.request.draft)
        self.library.downloads.ask(Planned(message.request, message.plan, self.hub.plan, load))

    def load(self, draft: str, model: str) -> None:
        """Close, and load the model with this drafter if that is one, else with its usual one."""
        self.dismiss(ModelPick(model, draft if "/" in draft else ""))

    def on_hub_tab_page(self, message: HubTab.Page) -> None:
        self.library.open_page(message.repo)

    def on_downloads_tab_dropped(self, message: DownloadsTab.Dropped) -> None:
        self.library.downloads.ask_drop(message.item)
