"""The downloads of this program: its queue, shown in the chat, and the question before each. Outlives every screen.

The queue is made when the models screen is first opened: a chat that never asks never reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual.message import Message
from textual.screen import ModalScreen

from localspec.core.sanitize import one_line
from localspec.hub.request import asked_repository
from localspec.models import hub_cache
from localspec.tui.control.parts import ChatParts
from localspec.tui.screens.dialog import Dialog, DialogButton

if TYPE_CHECKING:
    from localspec.hub.queue import Download, DownloadQueue
    from localspec.hub.records import PullPlan, PullRequest

COMPLETE = "{name} is complete.\n{models} and Enter load it, or:\n/model {name}"
COMPLETE_HERE = "{name} is complete.\n{models.disk} lists it: Enter loads it."  # the models screen is open
SECONDS = 12.0  # of the toast
KEEP, DELETE, LOAD = "keep", "delete", "load"
HERE = "It is already on this machine."

OfRepo = Callable[[str], object]


class Changed(Message):
    """A download has changed, or how far it is."""

    def __init__(self, item: Download) -> None:
        super().__init__()
        self.item = item


@dataclass(frozen=True, slots=True)
class Planned:
    """What a question before a download is about. `ask_again` finds out about another file of the same repository;
    `load` loads a model by its name."""

    request: PullRequest
    plan: PullPlan
    ask_again: Callable[[PullRequest], object]
    load: OfRepo


class Downloads:
    """`arrived` is called when a model is complete, `page` to see one's page, `delete_parts` with what was dropped."""

    def __init__(self, parts: ChatParts, *, arrived: OfRepo, page: OfRepo, delete_parts: OfRepo) -> None:
        self.screen, self.state, self.feedback = parts.screen, parts.state, parts.feedback
        self.arrived, self.page, self.delete_parts = arrived, page, delete_parts
        self.is_made = False
        self.states: dict[str, str] = {}  # of each download, as it was last heard
        self.unreported: list[str] = []  # complete since a question is open
        self.listens = False

    @cached_property
    def queue(self) -> DownloadQueue:
        from localspec.hub.queue import DownloadQueue

        self.is_made = True
        return DownloadQueue(lambda item: self.screen.post_message(Changed(item)))

    def close(self) -> None:
        if self.is_made:
            self.queue.close()

    def follow(self, item: Download) -> None:
        """Show in the chat what has changed; where a model is complete, offer it."""
        from localspec.tui.panels.download_rows import percent_line

        words = percent_line(self.queue.running)
        if words != self.state.download:
            self.state.download = words
            self.state.show_info()
        before, self.states[item.key] = self.states.get(item.key), item.state
        if item.state == "done" and before != "done":
            self.unreported.append(item.request.name)
            self.offer_all()
            self.arrived(item.request.repo)

    def offer_all(self, _screen: object = None) -> None:
        """Say which models are there, unless that would cover a question: then when it is closed."""
        app = self.screen.app
        if not self.listens:
            self.listens = True
            app.screen_change_signal.subscribe(self.screen, self.offer_all)
        if not isinstance(app.screen, ModalScreen):
            while self.unreported:
                self.offer(self.unreported.pop(0))

    def offer(self, name: str) -> None:
        """Says that a model is there. No focus moves."""
        complete = COMPLETE if self.screen.is_active else COMPLETE_HERE
        words = self.feedback.with_keys(complete.replace("{name}", "\0")).replace("\0", one_line(name))
        self.screen.app.notify(words, title="Downloaded", timeout=SECONDS, markup=False)

    # --- questions

    def ask(self, planned: Planned) -> None:
        """The one question before a download; of what is here already, whether to load it."""
        from localspec.tui.chat.plan_lines import PAGE, choices, is_here, plan_lines, repository_line

        request, plan = planned.request, planned.plan
        if is_here(plan):
            lines = [HERE, *map(repository_line, filter(None, (plan.target, plan.drafter)))]
            replies = [DialogButton(LOAD, "Load it"), DialogButton(PAGE, "See its page")]
            dialog = Dialog(request.repo, lines, replies)
        else:
            replies = [DialogButton(value, words) for value, words in choices(plan)]
            dialog = Dialog(f"Download {request.repo}?", plan_lines(plan), replies)
        self.screen.app.push_screen(dialog, partial(self.begin, planned))

    def begin(self, planned: Planned, reply: str | None) -> None:
        from localspec.tui.chat.plan_lines import ALONE, BOTH, PAGE, VARIANT, accept

        request, plan = planned.request, planned.plan
        if reply == PAGE:
            self.page(request.repo)
        elif reply == LOAD:
            planned.load(request.name)
        elif reply is not None and reply.startswith(VARIANT):
            planned.ask_again(replace(request, variant=reply.removeprefix(VARIANT)))
        elif reply in (BOTH, ALONE):
            chosen = plan if reply == BOTH else replace(plan, drafter=None)
            accept(chosen)
            wanted = replace(request, draft=drafter_name(chosen))
            self.queue.add(wanted, done=chosen.num_bytes - chosen.bytes_left, total=chosen.num_bytes)

    def forget(self, repo: str) -> None:
        """A model was deleted: its download is not complete any more."""
        item = self.queue.find(repo) if self.is_made else None
        if item is not None and item.state == "done":
            self.queue.drop(item.key)

    def ask_drop(self, item: Download) -> None:
        lines = [f"{one_line(item.request.repo)} is not complete ({item.percent} %)."]
        replies = [DialogButton(KEEP, "Cancel it and keep the parts: a later download continues")]
        if not hub_cache.has_version(item.request.repo):  # else another version would go with them
            replies.append(DialogButton(DELETE, "Cancel it and delete the parts"))
        self.screen.app.push_screen(Dialog("Cancel this download?", lines, replies), partial(self.drop, item))

    def drop(self, item: Download, reply: str | None) -> None:
        if reply is not None:
            self.queue.drop(item.key)
        if reply == DELETE:
            self.delete_parts(item.request.repo)


def drafter_name(plan: PullPlan) -> str:
    """The drafter of a plan as a request names it: its repository, and the variant if it is one file of several."""
    if plan.drafter is None:
        return "none"
    variant = asked_repository(plan.offer.name)[2]
    return f"{plan.drafter.repo}:{variant}" if variant else plan.drafter.repo
