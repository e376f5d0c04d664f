"""The downloads of this program: its queue, shown in the chat, and the question before each. Outlives every screen.

The queue is made when the models screen is first opened: a chat that never asks never reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual.message import Message

from localspec.core.sanitize import one_line
from localspec.models import hub_cache
from localspec.tui.control.parts import Parts
from localspec.tui.screens.asking import Asking, Reply

if TYPE_CHECKING:
    from localspec.hub.queue import Download
    from localspec.hub.queue import Downloads as Queue
    from localspec.hub.records import PullPlan, PullRequest

COMPLETE = "{repo} is complete.\n{models} and Enter load it, or:\n/model {repo}"
COMPLETE_HERE = "{repo} is complete.\n{models.disk} lists it: Enter loads it."  # the models screen is open
SECONDS = 12.0  # of the toast
KEEP, DELETE = "keep", "delete"


OfRepo = Callable[[str], object]


class Changed(Message):
    """A download has changed, or how far it is."""

    def __init__(self, item: Download) -> None:
        super().__init__()
        self.item = item


class Downloads:
    """`arrived` is called when a model is complete, `page` to see one's page, `delete_parts` with what was dropped."""

    def __init__(self, parts: Parts, *, arrived: OfRepo, page: OfRepo, delete_parts: OfRepo) -> None:
        self.screen, self.state, self.feedback = parts.screen, parts.state, parts.feedback
        self.arrived, self.page, self.delete_parts = arrived, page, delete_parts
        self.is_made = False

    @cached_property
    def queue(self) -> Queue:
        from localspec.hub.queue import Downloads as Queue

        self.is_made = True
        return Queue(lambda item: self.screen.post_message(Changed(item)))

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
        if item.state == "done":
            self.offer(item.request.repo)
            self.arrived(item.request.repo)

    def offer(self, repo: str) -> None:
        """Says that a model is there. No focus moves."""
        complete = COMPLETE if self.screen.is_active else COMPLETE_HERE
        words = self.feedback.with_keys(complete.replace("{repo}", "\0")).replace("\0", one_line(repo))
        self.screen.app.notify(words, title="Downloaded", timeout=SECONDS, markup=False)

    # --- questions

    def ask(self, request: PullRequest, plan: PullPlan, ask_again: Callable[[PullRequest], object]) -> None:
        """The one question before a download. `ask_again` finds out about another file of the same repository."""
        from localspec.tui.chat.plan_lines import choices, plan_lines

        replies = [Reply(value, words) for value, words in choices(plan)]
        asking = Asking(f"Download {request.repo}?", plan_lines(plan), replies)
        self.screen.app.push_screen(asking, partial(self.begin, request, plan, ask_again))

    def begin(
        self,
        request: PullRequest,
        plan: PullPlan,
        ask_again: Callable[[PullRequest], object],
        reply: str | None,
    ) -> None:
        from localspec.tui.chat.plan_lines import ALONE, BOTH, PAGE, VARIANT, accept

        if reply == PAGE:
            self.page(request.repo)
        elif reply is not None and reply.startswith(VARIANT):
            ask_again(replace(request, variant=reply.removeprefix(VARIANT)))
        elif reply in (BOTH, ALONE):
            chosen = plan if reply == BOTH else replace(plan, drafter=None)
            accept(chosen)
            drafter = chosen.drafter.repo if chosen.drafter else "none"
            wanted = replace(request, draft=drafter)
            self.queue.add(wanted, done=chosen.num_bytes - chosen.bytes_left, total=chosen.num_bytes)

    def ask_drop(self, item: Download) -> None:
        lines = [f"{one_line(item.request.repo)} is not complete ({item.percent} %)."]
        replies = [Reply(KEEP, "Drop it, and keep the parts: another download goes on from there")]
        if hub_cache.snapshot(item.request.repo) is None:  # else an older version would go with them
            replies.append(Reply(DELETE, "Drop it, and delete the parts"))
        self.screen.app.push_screen(Asking("Drop this download?", lines, replies), partial(self.drop, item))

    def drop(self, item: Download, reply: str | None) -> None:
        if reply is not None:
            self.queue.drop(item.key)
        if reply == DELETE:
            self.delete_parts(item.request.repo)
