"""Speculation as the user has it: switched by key and word, compared with none; answers that go on."""

from __future__ import annotations

from localspec.requests import SpecWish
from localspec.tui import speculation
from localspec.tui.branches import BranchScreen
from localspec.tui.compare import CompareScreen
from localspec.tui.header import drafting

BUSY = "That must wait until the answer has ended."
ENDED = "The last answer ended by itself: there is nothing to continue."
FULL = "The context is full: this answer cannot go on."


class SteerScreen(BranchScreen):
    """Tells the engine what is wished; the lines follow what the engine says."""

    def action_spec(self) -> None:
        self.steer(speculation.turned(self.wish), speculation.MODES)

    def command_spec(self, argument: str) -> None:
        self.steer(speculation.spelled(self.wish, argument), speculation.MODES)

    def command_k(self, argument: str) -> None:
        self.steer(speculation.of_length(argument), speculation.LENGTHS)

    def steer(self, wish: SpecWish | None, usage: str) -> None:
        """Tell the engine; it says when it does so, and the lines follow what it says."""
        if (lack := speculation.lack(self.spec)) or wish is None or self.feed is None:
            self.status.give_hint(lack or usage)
        else:
            self.wish = wish
            self.feed.steer(wish)

    def action_compare(self) -> None:
        self.call_later(self.command_compare, "")

    def command_compare(self, _: str) -> None:
        request, lack = self.last_question(), speculation.lack(self.spec)
        if lack or request is None or self.feed is None or self.spec is None:
            self.status.give_hint(lack or "There is no answered question to compare yet.")
        elif self.phase != "idle":
            self.status.give_hint(BUSY if self.phase != "gone" else self.status.state)
        else:
            self.enter("comparing", "comparing")
            self.comparison = CompareScreen(request, drafting(self.spec), self.feed.ask)
            self.app.push_screen(self.comparison, self.leave_comparison)

    def leave_comparison(self, _: None) -> None:
        if self.comparison is not None and self.feed is not None:
            self.enter("stopping", "stopping")
            self.feed.cancel()

    async def command_continue(self, _: str) -> None:
        """More of the last answer, in the same message."""
        said = self.conversation.last()
        if said is None or said.role != "assistant" or not said.text:
            self.status.give_hint("There is no answer to continue.")
        elif not said.may_go_on:
            self.status.give_hint(ENDED)
        elif self.model and said.made and said.made.stats.context_used >= self.model.context_max:
            self.status.give_hint(FULL)
        elif self.can_ask() and self.feed is not None:
            await self.resume(said, self.feed)
