"""One turn at a time between a user and an engine: what is said goes to the engine, what it says to the transcript.

Knows no engine but the five calls of `Engine`, no history but its scribe, and no keys. Everything that changes a turn
runs in the screen's own message queue, one at a time, so a stop, a new chat and a burst of tokens cannot interleave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from textual.containers import VerticalScroll
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget

from localspec.events import (
    AnyEvent,
    Done,
    Failure,
    FinishReason,
    Loading,
    ModelCard,
    Notice,
    Prefill,
    Ready,
    SpecCard,
    Stats,
    Step,
)
from localspec.history import Attachment, OpenChat, told
from localspec.sanitize import one_line
from localspec.stats import Tally
from localspec.tui.commands import find, literal, parse
from localspec.tui.feed import Arrived, Engine, Feed
from localspec.tui.header import Header
from localspec.tui.message import Answer, Note, Question
from localspec.tui.overflow import Choice, Overflow, Policy, grey
from localspec.tui.pace import Pace
from localspec.tui.past import conversation, remembered
from localspec.tui.prompt import Prompt
from localspec.tui.scribe import Scribe, Told
from localspec.tui.speed_panel import Reading, SpeedPanel
from localspec.tui.stats_line import StatsLine, loading_words
from localspec.tui.token_view import View
from localspec.tui.welcome import Welcome

Phase = Literal["loading", "idle", "reading", "generating", "stopping", "gone"]

DIED = "The engine stopped. Press Ctrl+R to load it again."
NOT_LOADED = "The model is not loaded. Press Ctrl+R to try again."
WAITING = "One message is waiting already; this one stays here."


class TurnScreen(Screen[None]):
    """Makes the widgets that a turn changes; where they stand, and what the user can press, is a subclass's."""

    view: reactive[View] = reactive("markdown", init=False)

    def __init__(
        self,
        make_engine: Callable[[], Engine],
        system: str | None,
        *,
        scribe: Scribe,
        past: OpenChat | None,
        overflow: Policy = "ask",
    ) -> None:
        super().__init__()
        self.first_overflow = self.overflow = overflow  # of every chat at its beginning; of this one
        self.make_engine, self.scribe = make_engine, scribe
        self.conversation = conversation(past, system)
        self.header, self.status, self.prompt = Header(), StatsLine(), Prompt()
        self.transcript = VerticalScroll(*remembered(past), id="transcript", can_focus=False)
        self.speed = SpeedPanel(self.reading)
        self.exit_code = 0
        self.phase: Phase = "loading"
        self.model: ModelCard | None = None
        self.drafter_failed = False
        self.tally, self.pace = Tally(), Pace()
        self.feed: Feed | None = None
        self.queued: Question | None = None
        self.asked: Question | None = None  # the one being answered
        self.question = ""  # as the model is told it
        self.answer: Answer | None = None
        self.rounds: Sequence[Step] = ()  # of the last answer

    # --- the engine

    def load(self) -> None:
        """Close the engine there was, if any, and begin loading another."""
        if self.feed is not None:
            self.feed.engine.close()
        self.tally, self.exit_code = Tally(), 0
        self.feed = Feed(self.make_engine(), self.wake)
        self.enter("loading", "loading")
        self.feed.start()
        self.run_worker(self.feed.read, thread=True, exit_on_error=False, group="engine")

    def wake(self, feed: Feed) -> None:
        """Called from the feed's thread."""
        self.post_message(Arrived(feed))

    async def on_arrived(self, message: Arrived) -> None:
        self.pace.start()
        await self.drain(message.feed)

    async def on_told(self, message: Told) -> None:
        await self.inform(message.notice)

    async def inform(self, notice: Notice) -> None:
        await self.show(Note(f"{notice.message} {notice.hint}".strip(), level=notice.level))

    async def drain(self, feed: Feed) -> None:
        """Take what has arrived, then look again a frame later until nothing has."""
        if feed is not self.feed:  # an engine that was replaced
            return
        arrived = feed.take()
        for event in arrived:
            await self.receive(event)
        behind = self.answer is not None and not self.pace.draws(in_code=self.answer.passages.in_code)
        if self.answer is not None and not behind:
            await self.answer.flush()
        self.status.stats = self.tally.stats if self.answer or self.conversation.history else Stats()
        if arrived or behind:
            self.speed.refresh()
            self.set_timer(self.pace.next_frame(), partial(self.drain, feed))

    def reading(self) -> Reading:
        """What the speed panel shows, asked for when it is drawn."""
        meter = self.tally.meter
        return Reading(self.status.stats, meter.band, len(meter.plain_ms), self.rounds)

    async def receive(self, event: AnyEvent | None) -> None:
        if event is not None:
            self.tally.add(event)
        match event:
            case Loading():
                self.enter("loading", loading_words(event))
            case Ready():
                await self.welcome_engine(event)
            case Prefill() if self.phase == "reading":
                self.enter("reading", f"reading prompt {event.cached + event.done:,}/{event.total:,}")
            case Step():
                self.write(event)
            case Notice():
                await self.inform(event)
                self.lose_drafter(event)
            case Done():
                await self.finish(event)
            case Failure() if event.turns_over and self.answer is not None and self.overflow != "stop":
                await self.outgrow(event)
            case Failure():
                await self.fail(event)
            case None:
                await self.lose_engine()

    async def welcome_engine(self, ready: Ready) -> None:
        self.exit_code = 0
        self.model, self.drafter_failed = ready.model, False
        self.header.show(ready.model, ready.spec)
        self.scribe.meet(ready)
        self.enter("idle", "idle")
        await self.ask_next()

    def lose_drafter(self, notice: Notice) -> None:
        if notice.code == "drafter_failed" and self.model is not None:
            self.drafter_failed = True
            self.scribe.lose_drafter()
            self.header.show(self.model, SpecCard("off", reason="it failed"))
            self.refresh_bindings()

    async def lose_engine(self) -> None:
        if self.answer is not None:
            await self.fail(Failure(code="engine_died", message="The engine stopped."))
        self.enter("gone", NOT_LOADED if self.exit_code else DIED)

    def enter(self, phase: Phase, words: str) -> None:
        if phase != self.phase:
            self.status.end_hint()
        could_reload = self.can_reload
        self.phase, self.status.state = phase, words
        if self.can_reload != could_reload:
            self.refresh_bindings()

    # --- a turn

    async def on_prompt_sent(self, message: Prompt.Sent) -> None:
        if (typed := parse(message.text)) is not None:
            self.prompt.pills.add(*message.attachments)
            self.obey(message.text, *typed)
        else:
            await self.say(literal(message.text), message.attachments)

    def on_prompt_refused(self, message: Prompt.Refused) -> None:
        self.status.give_hint(one_line(message.sentence))

    def obey(self, text: str, name: str, argument: str) -> None:
        """A slash command: it is never sent to the model, not even one that does not exist."""
        command = find(name)
        if command is None:
            self.prompt.give(text)
            self.status.give_hint(f"There is no command /{name}. Type // to begin a message with a slash.")
        else:
            self.call_later(getattr(self, command.method), argument)

    async def say(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """Ask this, or let it wait until it can be asked."""
        if self.queued is not None or self.phase == "gone":
            self.prompt.give(text, attachments)
            self.status.give_hint(
                WAITING if self.queued is not None else f"{self.status.state} Your message stays here."
            )
            return
        self.queued = Question(text, queued=self.phase != "idle", attachments=attachments)
        await self.show(self.queued)
        self.transcript.anchor()
        if self.phase == "idle":
            await self.ask_next()

    async def ask_next(self) -> None:
        """Ask what waits, if anything does."""
        if self.queued is None or self.feed is None:
            return
        question, self.queued = self.queued, None
        question.asked()
        self.asked, self.question = question, told(question.text, question.attachments)
        self.answer = Answer(self.model.name if self.model else "")
        self.answer.view, self.rounds = self.view, self.answer.rounds
        self.enter("reading", "reading prompt")  # before the answer is mounted: idle must mean that nothing is asked
        self.tally.begin()
        self.scribe.ask(question.text, question.attachments)
        await self.show(self.answer)
        self.feed.ask(self.conversation.request(self.question))

    def write(self, step: Step) -> None:
        if self.phase == "reading":
            self.enter("generating", "generating")
        if self.answer is not None:
            self.answer.add(step)
            self.scribe.add(step)

    async def finish(self, done: Done) -> None:
        words = "stopped" if self.answer is not None and done.finish_reason == "cancelled" else "idle"
        if self.answer is not None:
            await self.answer.finish(done.stats)
            self.end_turn(done.finish_reason)
        self.enter("idle", words)
        await self.ask_next()

    async def fail(self, failure: Failure) -> None:
        hint = "" if failure.code == "engine_died" else failure.hint  # the state line says it as long as it is true
        sentence = f"{failure.message} {hint}".strip()
        if self.phase == "loading":
            if self.exit_code and failure.code == "engine_died":
                return  # the reason has been said; that the engine then ended is no news
            self.exit_code = failure.exit_code
        if self.answer is None:
            await self.show(Note(sentence, level="error"))
        else:
            await self.answer.fail(sentence)
            self.end_turn("error")
            self.enter("idle", "idle")
        if self.phase == "idle" and failure.code != "engine_died":
            await self.ask_next()

    async def outgrow(self, failure: Failure) -> None:
        """The question does not fit with all that was said before it."""
        self.enter("reading", "the context is full")
        if self.overflow == "drop-oldest":
            await self.make_room(failure)
        else:
            self.app.push_screen(Overflow(failure.message, failure.turns_over), partial(self.choose, failure))

    async def choose(self, failure: Failure, choice: Choice | None) -> None:
        """For this chat, where something was chosen."""
        if self.phase != "reading":
            return  # the engine ended meanwhile, and the turn with it
        if choice == "new" and (asked := self.asked):
            self.enter("idle", "idle")
            await self.begin_chat()
            await self.say(asked.text, asked.attachments)
        elif choice == "drop-oldest":
            self.overflow = choice
            await self.make_room(failure)
        else:
            self.overflow = "stop" if choice == "stop" else self.overflow
            await self.fail(failure)

    async def make_room(self, failure: Failure) -> None:
        """Ask again, without the oldest turns."""
        if self.answer is None or self.feed is None:
            return
        self.conversation.untold += failure.turns_over
        await grey(self.transcript, self.conversation.turns_told, self.answer)
        self.enter("reading", "reading prompt")
        self.feed.ask(self.conversation.request(self.question))

    def end_turn(self, reason: FinishReason) -> None:
        """Remember what was said; the next turn may begin."""
        self.scribe.end(self.tally.stats, reason)
        if self.answer is not None:
            self.conversation.keep(self.question, self.answer.text)
        self.answer = None

    async def show(self, widget: Widget) -> None:
        """Add to the transcript: a message that waits stays last, and a note comes before an answer not begun."""
        if isinstance(widget, Question):
            await self.transcript.query(Welcome).remove()
        unbegun = self.answer if isinstance(widget, Note) and self.answer is not None and not self.answer.text else None
        later = next((w for w in (unbegun, self.queued) if w is not None and w.is_attached), None)
        await self.transcript.mount(widget, before=later)

    @property
    def answering(self) -> bool:
        return self.phase in {"reading", "generating"}

    @property
    def can_reload(self) -> bool:
        return self.phase == "gone" or (self.phase == "idle" and self.drafter_failed)

    def stop_answer(self) -> None:
        if self.answering and self.feed is not None:
            self.enter("stopping", "stopping")
            self.feed.cancel()

    async def take_back(self) -> None:
        """The message that waits returns to the prompt."""
        if self.queued is not None:
            question, self.queued = self.queued, None
            self.prompt.give(question.text, question.attachments)
            await question.remove()

    async def begin_chat(self) -> None:
        self.stop_answer()
        if self.answer is not None:
            await self.answer.end()
        self.scribe.end(self.tally.stats, "cancelled")
        self.scribe.leave()
        self.answer = self.queued = None
        self.overflow = self.first_overflow
        self.conversation.forget()
        self.status.stats, self.rounds = Stats(), ()
        self.speed.refresh()
        await self.transcript.remove_children()
        await self.transcript.mount(Welcome())
