"""The hub's tab: a search, what it found with size, fit, licence, gate and pair, and details of the row in hand.

Asks through a HubLink, and puts downloads into the queue. Nothing is asked before the tab is opened.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.core.errors import AccessDenied, LocalspecError, PullError
from localspec.core.sanitize import one_line
from localspec.engine.drafters.table import EARLY_EXIT
from localspec.hub.environment import is_offline, page_of
from localspec.hub.queue import DownloadQueue
from localspec.hub.records import (
    STAGES,
    AskFit,
    AskPair,
    AskPull,
    AskSearch,
    FitFound,
    FitRequest,
    PairFound,
    PairRequest,
    Progress,
    PullPlan,
    PullRequest,
    SearchPage,
)
from localspec.tui.control.hub_link import HubAnswered, HubLink
from localspec.tui.keys.key_names import with_keys
from localspec.tui.panels.download_rows import here_words
from localspec.tui.panels.field import LONGEST, Field
from localspec.tui.panels.hub_rows import Listing, detail, listed
from localspec.tui.panels.hub_search import HubSearch
from localspec.tui.panels.key_lists import HubList, KeyList
from localspec.tui.panels.state_line import StateLine
from localspec.tui.terminal.timer import once

TYPING_SECONDS = 0.3  # without a key, until what is typed is searched for
REST_SECONDS = 0.3  # on a row, until its headers are read
OFFLINE = "Offline: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set. What is on disk works."
AT_THE_GATE = "Enter shows what to do."
ENTER = "Enter tries again."
NEXT_PAGE = "The last row tries again."
DRAFTER = "{hub.drafter} tries again."
SEARCHING = "Asking the hub…"
NOTHING = "Nothing was found."
ALL_HIDDEN = "Nothing that was found fits this machine; {hub.fits} shows the rest."


class HubTab(Vertical):
    """`searches` and `facts` ask processes of their own: a search does not wait for the headers of a row."""

    class Planned(Message):
        """What is wanted is known; whether to begin is to be asked."""

        def __init__(self, request: PullRequest, plan: PullPlan) -> None:
            super().__init__()
            self.request, self.plan = request, plan

    class Page(Message):
        """A repository's page is to be seen."""

        def __init__(self, repo: str) -> None:
            super().__init__()
            self.repo = repo

    typing: TimerHandle | None = None
    resting: TimerHandle | None = None

    def __init__(self, queue: DownloadQueue) -> None:
        super().__init__(id="hub")
        self.queue, self.search = queue, HubSearch()
        self.searches, self.facts = HubLink(self), HubLink(self)
        self.is_open = False
        self.listings: Sequence[Listing] = ()
        self.words_here: Sequence[str] = ()
        self.drawn: Sequence[str] = ()  # the repositories of the rows, in order
        self.on_disk = frozenset[str]()
        self.cursor, self.planning = "", ""
        self.leads_to_rows = False  # Enter was pressed: the cursor goes to what is found
        self.words = Field(placeholder="name, author or words", compact=True, max_length=LONGEST, id="hub-words")
        self.options, self.state = Static(markup=False, classes="options"), StateLine()
        self.list, self.detail = HubList(markup=False, id="hub-list"), Static(markup=False, classes="detail")

    def compose(self) -> ComposeResult:
        yield from (self.words, self.options, self.state, self.list, self.detail)

    def on_mount(self) -> None:
        self.show_options()

    def on_unmount(self) -> None:
        for timer in (self.typing, self.resting):
            if timer is not None:
                timer.cancel()
        self.searches.close()
        self.facts.close()

    def open(self) -> None:
        """The tab is on the screen: only now the hub is asked, for what is most wanted at present."""
        if is_offline():
            self.state.say(OFFLINE)
            self.words.disabled = True
            self.list.focus()
            return
        self.words.disabled = False
        if not self.is_open:
            self.is_open = True
            self.ask_search()
        self.words.focus()

    # --- the search

    @on(Input.Changed)
    def type_on(self, event: Input.Changed) -> None:
        event.stop()
        self.leads_to_rows = False
        if self.typing is not None:
            self.typing.cancel()
        self.typing = once(self, TYPING_SECONDS, self.ask_search)

    @on(Input.Submitted)
    def search_now(self, event: Input.Submitted) -> None:
        event.stop()
        self.leads_to_rows = True
        self.ask_search()

    def on_key(self, event: events.Key) -> None:
        if event.key == "down" and self.words.has_focus:
            event.stop()
            self.list.focus()

    def ask_search(self, cursor: str = "") -> None:
        if self.typing is not None:
            self.typing.cancel()
        self.search = replace(self.search, words=self.words.value.strip())
        if self.is_open:
            self.state.wait(SEARCHING)
            self.searches.ask(AskSearch(self.search.request(cursor)))

    @on(HubAnswered)
    def hear(self, message: HubAnswered) -> None:
        """An answer; one to a question that no longer matters is passed over."""
        message.stop()
        match message.answer:
            case SearchPage() as page if isinstance(message.question, AskSearch):
                self.take_page(message.question, page)
            case FitFound() as found if isinstance(message.question, AskFit):
                self.take_fit(message.question.request, found)
            case PairFound() as found if isinstance(message.question, AskPair):
                self.take_pair(message.question.request, found)
            case PullPlan() as plan if isinstance(message.question, AskPull):
                self.take_plan(message.question.request, plan)
            case Progress() as progress if progress.repo:
                self.state.wait(f"{one_line(progress.repo)}: {STAGES[progress.stage]}…")
            case LocalspecError() as fault:
                self.fail(message.question, fault)

    def take_page(self, asked: AskSearch, page: SearchPage) -> None:
        if asked.request != self.search.request(asked.request.cursor):
            return
        known = {one.row.repo: one for one in self.listings}
        new = [known.get(row.repo) or Listing(row) for row in page.rows]
        self.listings = [*self.listings, *new] if asked.request.cursor else new
        self.cursor, self.state.waits = page.cursor, ""
        self.show_rows(first=not asked.request.cursor)
        self.say_how_many()
        if self.leads_to_rows and self.drawn and self.words.has_focus:
            self.list.focus()
        self.leads_to_rows = False

    def fail(self, question: object, fault: LocalspecError) -> None:
        """A fit that cannot be found leaves the estimate as it is; what to do at a closed gate is Enter's to say."""
        self.planning = "" if isinstance(question, AskPull) else self.planning
        if isinstance(question, AskFit):
            words = f"{fault.message} {AT_THE_GATE}" if isinstance(fault, AccessDenied) else str(fault)
            self.detail.update(Content(one_line(words)))
        elif isinstance(question, AskSearch):
            self.fail_search(question, fault)
        else:
            self.say_fault(fault, with_keys(self, DRAFTER if isinstance(question, AskPair) else ENTER))

    def fail_search(self, asked: AskSearch, fault: LocalspecError) -> None:
        """No row stays that was not searched for: Enter is for the field, and asks again. Of a search with several
        pages those that came stay."""
        if asked.request != self.search.request(asked.request.cursor):
            return
        self.leads_to_rows = False
        if asked.request.cursor:
            self.cursor = asked.request.cursor
            self.say_fault(fault, NEXT_PAGE)
            return
        self.listings, self.cursor = (), ""
        self.show_rows()
        if self.list.has_focus:
            self.words.focus()
        self.say_fault(fault, ENTER)

    def say_fault(self, fault: LocalspecError, again: str) -> None:
        """`again`: what tries again, where the hub itself failed."""
        self.state.waits = ""
        self.state.say(f"{fault.message} {again}" if isinstance(fault, PullError) else str(fault))

    # --- what is shown

    def show_options(self) -> None:
        self.options.update(Content(with_keys(self, self.search.options)))

    @property
    def shown(self) -> list[Listing]:
        """The rows in the order and with the filters that are chosen, with what of them is here."""
        return [replace(one, here=self.here(one)) for one in self.search.arranged(self.listings)]

    def here(self, listing: Listing) -> str:
        repo = listing.row.repo
        item = self.queue.find(repo)
        if item is not None and item.state != "done":
            return here_words(item)
        return "✓ disk" if repo in self.on_disk else ""

    @property
    def listing(self) -> Listing | None:
        """The row under the cursor."""
        index = self.list.highlighted
        repo = self.drawn[index] if index is not None and index < len(self.drawn) else ""
        return next((one for one in self.listings if one.row.repo == repo), None)

    def show_rows(self, *, first: bool = False) -> None:
        """Draw all rows; the cursor stays on its own unless they are of another search."""
        before, shown, listing = self.drawn, self.shown, self.listing
        lines, self.drawn = listed(shown, self.size.width - 4), [one.row.repo for one in shown]
        if self.drawn == before:
            for index, line in enumerate(lines):
                self.list.replace_option_prompt_at_index(index, line)
        else:
            at = self.drawn.index(listing.row.repo) if listing and listing.row.repo in self.drawn else 0
            self.list.set_options([Option(line) for line in lines])
            self.list.highlighted = (0 if first else at) if lines else None
        self.show_detail()

    def take_here(self, repos: Iterable[str]) -> None:
        """Marks the rows of these, which are on the disk now."""
        self.on_disk = frozenset(repos)
        self.follow()

    def follow(self) -> None:
        """The queue has changed: where a row's word for it has, too, draw anew."""
        words = [self.here(one) for one in self.listings]
        if words != self.words_here:
            self.words_here = words
            self.show_rows()

    def say_how_many(self) -> None:
        """Say what is waited for, or why there is no row."""
        self.state.rest("" if self.drawn else with_keys(self, ALL_HIDDEN) if self.listings else NOTHING)

    def show_detail(self) -> None:
        self.detail.update(detail(self.listing) if self.listing else "")

    def on_resize(self) -> None:
        if self.listings:
            self.show_rows()

    # --- the row under the cursor

    @on(OptionList.OptionHighlighted)
    def rest_on(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self.show_detail()
        if self.resting is not None:
            self.resting.cancel()
        self.resting = once(self, REST_SECONDS, self.read_headers)
        if self.cursor and event.option_index == self.list.option_count - 1:
            cursor, self.cursor = self.cursor, ""
            self.ask_search(cursor)

    def read_headers(self) -> None:
        """The exact fit of the row, once; of one that is behind a gate nothing can be read."""
        listing = self.listing
        if listing is not None and listing.fit is None and not listing.row.note:
            drafter = listing.drafter.name if listing.drafter else ""
            self.facts.ask(AskFit(FitRequest(listing.row.repo, drafter=drafter)))

    def take_fit(self, asked: FitRequest, found: FitFound) -> None:
        self.change(asked.repo, lambda one: replace(one, fit=found.report), drafter=asked.drafter)

    def change(self, repo: str, change: Callable[[Listing], Listing], *, drafter: str | None = None) -> None:
        """Change the row of a repository; with `drafter`, only while it is listed with that one."""
        fits = [
            one.row.repo == repo and (drafter is None or drafter == (one.drafter.name if one.drafter else ""))
            for one in self.listings
        ]
        self.listings = [change(one) if is_it else one for one, is_it in zip(self.listings, fits, strict=True)]
        if any(fits):
            self.show_rows()

    # --- keys

    @on(OptionList.OptionSelected)
    def download(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self.listing is not None and self.planning != self.listing.row.repo:
            drafter = self.listing.drafter
            self.plan(PullRequest(self.listing.row.repo, draft=drafter.name if drafter else "auto"))

    def plan(self, request: PullRequest) -> None:
        """Find out all there is to know before a download."""
        self.planning = request.repo
        self.state.wait(f"{one_line(request.repo)}: {STAGES['resolving']}…")
        self.facts.ask(AskPull(request))

    def take_plan(self, request: PullRequest, plan: PullPlan) -> None:
        if self.planning == request.repo:
            self.planning = ""
            self.state.wait("")
            self.post_message(self.Planned(request, plan))

    @on(KeyList.Wanted)
    def act(self, message: KeyList.Wanted) -> None:
        message.stop()
        if message.what == "search":
            self.words.focus()
        elif message.what in ("sort", "fits", "gated", "gguf"):
            self.rearrange(message.what)
        elif (listing := self.listing) is not None:
            self.act_on(listing, message.what)

    def act_on(self, listing: Listing, what: str) -> None:
        match what:
            case "drafter":
                self.find_drafter(listing)
            case "licence":
                licence = listing.row.licence
                text = licence.link or page_of(listing.row.repo)
                self.state.say(f"{listing.row.repo} is under {licence.words}. Its text: {text}")
            case _:
                self.post_message(self.Page(listing.row.repo))

    def rearrange(self, what: str) -> None:
        before = self.search.request()
        self.search = self.search.changed(what)
        self.show_options()
        if self.search.request() != before:
            self.ask_search()
        else:
            self.show_rows()
            self.say_how_many()

    def find_drafter(self, listing: Listing) -> None:
        """Lists it with the best drafter, or without the one it is listed with."""
        repo = listing.row.repo
        if listing.drafter is not None:
            self.change(repo, lambda one: replace(one, drafter=None, fit=None))
            self.read_headers()
        elif listing.row.pair == EARLY_EXIT.label(""):
            self.state.say(f"{one_line(repo)} drafts for itself by early exit: no second model is needed.")
        else:
            self.state.wait(f"Looking for a drafter for {one_line(repo)}…")
            self.facts.ask(AskPair(PairRequest(repo, hub=True)))

    def take_pair(self, asked: PairRequest, found: PairFound) -> None:
        self.state.wait("")
        good = next((one for one in found.candidates if one.verdict and one.verdict.same_tokens), None)
        if good is None:
            self.state.say(f"No drafter was found for {one_line(asked.target)}.")
            return
        self.change(asked.target, partial(replace, drafter=good, fit=None))
        self.read_headers()
