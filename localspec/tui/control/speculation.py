"""Switches speculation by key and command, and compares answers with and without it."""

from __future__ import annotations

from msgspec.structs import replace

from localspec.core.errors import UsageError
from localspec.core.events import AnyEvent, Failure, Notice, Ready, SpecCard
from localspec.core.requests import GenerateRequest, SpecOptions
from localspec.models.spelling import READ_AS
from localspec.tui.control import spec_switch
from localspec.tui.control.parts import ChatParts
from localspec.tui.screens.compare import CompareScreen, OfAnswer
from localspec.tui.screens.compare_methods import CompareMethod, compared

BUSY = "Wait until the answer has ended."
REPLACED = Failure("replaced", "Another engine is being loaded.")


class Speculation:
    """Steers the engine's speculation; the lines follow the engine's events. `requested` is the last request."""

    requested = SpecOptions()
    chosen: SpecOptions | None = None  # by the user, of this model and drafter
    comparison: CompareScreen | None = None

    def __init__(self, parts: ChatParts) -> None:
        self.screen, self.state, self.feedback, self.engine = parts.screen, parts.state, parts.feedback, parts.engine
        self.conversation, self.tuning = parts.conversation, parts.tuning

    # --- the switch

    def welcome(self, ready: Ready) -> None:
        """Begin as this model and drafter do unasked."""
        self.requested = spec_switch.options_at_start(ready.spec)

    def follow(self, spec: SpecCard) -> None:
        """What speculates now is known better; the user has chosen nothing."""
        if self.chosen is None:
            self.requested = spec_switch.options_at_start(spec)

    def restore(self, ready: Ready) -> None:
        """Applies the user's choice again when the same model is loaded again."""
        if self.chosen is not None and self.engine.feed is not None and not spec_switch.lack(ready.spec):
            self.requested = self.chosen
            self.engine.feed.steer(self.requested)

    def forget(self) -> None:
        """Forgets the user's choice: another model has its own."""
        self.chosen = None

    def toggle(self) -> None:
        self.steer(spec_switch.turned(self.requested), spec_switch.MODES)

    def switch(self, argument: str) -> None:
        """/spec"""
        self.steer(spec_switch.spelled(self.requested, argument), spec_switch.MODES)

    def set_length(self, argument: str) -> None:
        """/k"""
        self.steer(spec_switch.of_length(argument), spec_switch.LENGTHS)

    def steer(self, options: SpecOptions | None, usage: str) -> None:
        """Ask the engine, and say what was chosen: of a narrow header the end is cut. The lines follow what it does."""
        if lack := spec_switch.lack(self.state.spec):
            self.feedback.refuse(lack)
        elif options is None or self.engine.feed is None:
            self.feedback.refuse(usage)
        else:
            self.requested = self.chosen = options
            self.engine.feed.steer(options)
            self.feedback.hint(spec_switch.chosen(options))

    # --- the comparison

    def compare(self, argument: str) -> None:
        """/compare: plain and as it is drafted; or as it is drafted and would be."""
        try:
            ways = compared(argument, self.state.spec, self.state.model)
        except UsageError as fault:
            self.feedback.refuse(str(fault))
        else:
            self.begin_comparison(ways)

    def begin_comparison(self, ways: tuple[CompareMethod, CompareMethod]) -> None:
        request, state = self.last_question(), self.state
        if state.phase != "idle" or self.engine.feed is None:
            self.feedback.refuse(BUSY if state.answering else f"Not now: {state.status.state}")
        elif request is None:
            self.feedback.hint("There is no answered question to compare yet.")
        else:
            state.enter("comparing", "comparing")
            self.comparison = CompareScreen(request, ways, self.engine.feed.ask)
            self.screen.app.push_screen(self.comparison, self.leave_comparison)

    def last_question(self) -> GenerateRequest | None:
        """The request for the last question, as if it had not been answered; greedy, unless a temperature was asked
        for: two answers that are sampled differ by chance."""
        answer = self.conversation.last("assistant")
        question = self.conversation.question(answer) if answer else None
        return replace(self.conversation.request(question), sampling=self.tuning.asked) if question else None

    def leave_comparison(self, _: None) -> None:
        if self.comparison is not None and self.engine.feed is not None:
            self.state.enter("stopping", "stopping")
            self.engine.feed.cancel()

    def end_comparison(self) -> None:
        """A comparison ends with the engine that it asked."""
        if self.comparison is not None:
            self.comparison.receive(REPLACED)
            self.comparison = None

    def takes(self, event: AnyEvent | None) -> bool:
        """Whether this belongs to the comparison, as an answer does until that is over, though it may be closed."""
        if self.comparison is None:
            return False
        if isinstance(event, Notice) and event.code == READ_AS:
            return True  # it stands above the answer in the chat
        if not isinstance(event, OfAnswer):
            return False
        self.comparison.receive(event)
        if self.comparison.over:
            self.comparison = None
            self.state.enter("idle", "idle")
        return True

    def draw(self, comparison: CompareScreen) -> bool:
        """Show what came; whether some of it has to wait for a later frame."""
        if not self.engine.pace.draws(in_code=False):
            return True
        comparison.follow()
        return False
