"""Speculation as the user has it: switched by key and word, compared with none; answers that go on."""

from __future__ import annotations

import asyncio

from localspec.core.errors import UsageError
from localspec.core.events import AnyEvent, Failure, Notice
from localspec.core.requests import GenerateRequest, SpecWish
from localspec.models.folding import READ_AS
from localspec.tui.chat.conversation import Utterance
from localspec.tui.control import speculation
from localspec.tui.control.feed import Feed
from localspec.tui.control.outgrowing import OutgrowScreen
from localspec.tui.screens.compare import CompareScreen, OfAnswer
from localspec.tui.screens.compare_methods import Way, compared

BUSY = "That must wait until the answer has ended."
ENDED = "The last answer ended by itself: there is nothing to continue."
REPLACED = Failure("replaced", "Another engine is being loaded.")
FULL = "The context is full: this answer cannot go on."


class SteerScreen(OutgrowScreen):
    """Tells the engine what is wished; the lines follow what the engine says."""

    comparison: CompareScreen | None = None

    def load(self) -> None:
        """A comparison ends with the engine that it asked."""
        if self.comparison is not None:
            self.comparison.receive(REPLACED)
            self.comparison = None
        super().load()

    async def receive(self, event: AnyEvent | None) -> None:
        """What the engine says belongs to the comparison until that is over, though it may be closed by then."""
        if self.comparison is not None and isinstance(event, Notice) and event.code == READ_AS:
            return  # it stands above the answer in the chat
        if self.comparison is None or not isinstance(event, OfAnswer):
            await super().receive(event)
            return
        self.comparison.receive(event)
        if self.comparison.over:
            self.comparison = None
            self.enter("idle", "idle")

    async def draw(self) -> bool:
        if self.comparison is None:
            return await super().draw()
        if not self.pace.draws(in_code=False):
            return True
        self.comparison.follow()
        return False

    def action_spec(self) -> None:
        self.steer(speculation.turned(self.wish), speculation.MODES)

    def command_spec(self, argument: str) -> None:
        self.steer(speculation.spelled(self.wish, argument), speculation.MODES)

    def command_k(self, argument: str) -> None:
        self.steer(speculation.of_length(argument), speculation.LENGTHS)

    def steer(self, wish: SpecWish | None, usage: str) -> None:
        """Tell the engine; it says when it does so, and the lines follow what it says."""
        if lack := speculation.lack(self.spec):
            self.refuse(lack)
        elif wish is None or self.feed is None:
            self.refuse(usage)
        else:
            self.wish = self.wished = wish
            self.feed.steer(wish)

    def action_compare(self) -> None:
        self.call_later(self.command_compare, "")

    def command_compare(self, argument: str) -> None:
        """Plain and as it is drafted; or as it is drafted and would be."""
        try:
            ways = compared(argument, self.spec, self.model)
        except UsageError as fault:
            self.refuse(str(fault))
        else:
            self.compare(ways)

    def compare(self, ways: tuple[Way, Way]) -> None:
        request = self.last_question()
        if self.phase != "idle" or self.feed is None:
            self.refuse(BUSY if self.answering else f"Not now: {self.status.state}")
        elif request is None:
            self.status.give_hint("There is no answered question to compare yet.")
        else:
            self.enter("comparing", "comparing")
            self.comparison = CompareScreen(request, ways, self.feed.ask)
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

    async def resume(self, said: Utterance, feed: Feed) -> None:
        """More of an answer that was cut, in the same place."""
        question = self.conversation.question(said)
        if question is None:
            return
        self.said, self.answer = said, self.transcript.answer(said)
        self.enter("reading", "reading prompt")
        before = await asyncio.to_thread(self.scribe.rounds, said.id) if said.is_kept else tuple(said.rounds)
        self.rounds = self.answer.rounds
        await self.answer.resume()
        self.tally.begin()
        self.scribe.resume(said, before, self.tuning.params)
        self.transcript.anchor()
        self.ask(self.conversation.request(question, said.text), feed)

    def last_question(self) -> GenerateRequest | None:
        """Once more, as if it had not been answered."""
        answer = self.conversation.last("assistant")
        question = self.conversation.question(answer) if answer else None
        return self.conversation.request(question) if question else None
