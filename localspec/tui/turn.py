"""One turn at a time between a user and an engine: what is said goes to the engine, what it says to the transcript.

Knows no engine but the six calls of `Engine`, no history but its scribe, and no keys. Everything that changes a turn
runs in the screen's own message queue, one at a time, so a stop, a new chat and a burst of tokens cannot interleave.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable, Sequence
from functools import partial
from inspect import isawaitable
from typing import Literal

from msgspec.structs import replace
from textual.events import Key
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
    Steered,
    Step,
)
from localspec.history import Attachment, OpenChat, first_line
from localspec.requests import GenerateRequest, SpecWish
from localspec.sanitize import one_line
from localspec.stats import Tally
from localspec.tui.collecting import collect
from localspec.tui.commands import find, literal, parse, unknown
from localspec.tui.conversation import Utterance
from localspec.tui.drafts import why_off
from localspec.tui.feed import Arrived, Engine, Feed
from localspec.tui.header import Header, switch
from localspec.tui.info import Info
from localspec.tui.keys import with_keys
from localspec.tui.message import Answer, Note
from localspec.tui.once import once
from localspec.tui.pace import SHARE, SPARE_SHARE, Pace
from localspec.tui.painter import Painter
from localspec.tui.past import conversation, remembered, title
from localspec.tui.prompt import Prompt
from localspec.tui.scribe import Kept, Scribe, Told
from localspec.tui.speculation import wish_at_start
from localspec.tui.speed_panel import Reading, SpeedPanel
from localspec.tui.stats_line import StatsLine, loading_words
from localspec.tui.token_view import View
from localspec.tui.transcript import Transcript
from localspec.tui.tuning import Choice, Tuning

Phase = Literal["loading", "idle", "reading", "generating", "stopping", "comparing", "benchmarking", "gone", "unloaded"]

DIED = "The engine stopped. Press {reload} to load it again."
NOT_LOADED = "Not loaded: {reload} tries again, {models} another model."
UNLOADED = "unloaded: the next question loads it again"
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
        tuning: Tuning,
    ) -> None:
        super().__init__()
        self._compositor = Painter()
        self.make_engine, self.scribe, self.tuning = make_engine, scribe, tuning
        self.past, self.conversation = past, conversation(past, system, tuning)
        self.header, self.status, self.prompt = Header(), StatsLine(), Prompt(self.claims)
        self.transcript = Transcript(
            busy=lambda: self.busy,
            version=self.conversation.version,
            rounds=scribe.rounds,
            window=tuning.config.ui.window_messages,
        )
        self.speed = SpeedPanel(self.reading)
        self.speed.wish = {"auto": None, "on": True, "off": False}[tuning.config.ui.speed_panel]
        self.exit_code = 0
        self.phase: Phase = "loading"
        self.model: ModelCard | None = None
        self.spec: SpecCard | None = None
        self.device_bytes = 0
        self.wish = SpecWish()  # what the engine was told last
        self.drafter_failed = False
        self.title = past.chat.title if past else ""
        self.tally, self.pace = Tally(), Pace(1 / tuning.config.ui.max_fps)
        self.feed: Feed | None = None
        self.queued: Utterance | None = None
        self.said: Utterance | None = None  # the answer being written, and its widget
        self.answer: Answer | None = None
        self.rounds: Sequence[Step] = ()  # of the last answer
        self.has_news = False  # for the figures
        self.look: TimerHandle | None = None  # the next one at what has arrived

    async def show_chat(self) -> None:
        """The chat that is gone on with, or how to begin one."""
        await self.transcript.begin(title(self.past) if self.past else "", self.conversation.branch)
        self.transcript.anchor()

    def watch__selecting(self) -> None:
        """What is selected may begin or end out of sight."""
        self.refresh(layout=True)

    # --- the engine

    def load(self) -> None:
        """Close the engine there was, if any, and begin loading another."""
        if self.feed is not None:
            self.feed.engine.close()
        self.tally, self.exit_code, self.spec = Tally(), 0, None
        self.feed = Feed(self.make_engine(), self.wake)
        self.enter("loading", "loading")
        self.show_info()
        self.feed.start()
        self.run_worker(self.feed.read, thread=True, exit_on_error=False, group="engine")

    async def unload(self) -> None:
        """Free what the engine holds. Nothing is lost: what was said is told to the next one."""
        if self.phase not in {"idle", "loading"} or self.feed is None:
            self.status.give_hint("Stop the answer first: press Esc." if self.answer else "Nothing is loaded.")
            return
        feed, self.feed = self.feed, None
        await self.take_back()
        self.enter("unloaded", UNLOADED)
        await asyncio.to_thread(feed.engine.close)

    async def change_model(self, choice: Choice) -> None:
        """Load what was chosen; an answer that is being written ends here. The conversation goes on."""
        await self.break_off()
        self.tuning.take(choice)
        self.scribe.change(model_key=choice.name, preset=self.tuning.preset)
        self.header.clear()
        self.load()

    def wake(self, feed: Feed) -> None:
        """Called from the feed's thread."""
        self.post_message(Arrived(feed))

    async def on_arrived(self, message: Arrived) -> None:
        await self.drain(message.feed)

    def tell(self, notice: Notice) -> None:
        """Called from any thread."""
        self.post_message(Told(notice))

    async def on_told(self, message: Told) -> None:
        await self.inform(message.notice)

    async def inform(self, notice: Notice) -> None:
        """What already stands at the end of the transcript is not said again."""
        note = Note(f"{notice.message} {notice.hint}".strip(), level=notice.level)
        last = next(reversed(self.transcript.children), None)
        if not (isinstance(last, Note) and last.said == note.said):
            await self.show(note)

    async def drain(self, feed: Feed) -> None:
        """Take what has arrived, then look again a frame later until nothing has."""
        if feed is not self.feed:  # an engine that was replaced
            return
        arrived = feed.take()
        for event in arrived:
            await self.receive(event)
        behind = await self.draw()
        if self.answer is None:
            self.show_figures()
        if self.look is not None:
            self.look.cancel()
        if arrived or behind:
            self.look = once(self, self.pace.wait(), partial(self.drain, feed))

    async def draw(self) -> bool:
        """Show what was written and how fast; whether some of it has to wait for a later frame."""
        if self.answer is None:
            return False
        if not self.pace.draws(in_code=self.answer.passages.in_code):
            return True
        await self.answer.flush()
        if self.has_news and self.pace.draws_figures():
            self.show_figures()
        return self.has_news

    def show_figures(self) -> None:
        self.status.stats = self.tally.stats if self.answer or self.rounds else Stats()
        self.has_news = False
        if self.answer is not None:
            self.answer.follow_rounds()
        self.follow_figures()

    def follow_figures(self) -> None:
        """Header, panel and state line read what was measured."""
        self.header.follow(self.reading())
        self.speed.follow()
        self.show_info()

    def reading(self) -> Reading:
        """What header and speed panel show; the panel asks for it when it is drawn."""
        meter, device = self.tally.meter, self.model.device if self.model else ""
        known = self.status.stats, meter.band, len(meter.plain_ms), self.rounds
        return Reading(*known, self.spec, device, self.device_bytes)

    def show_info(self) -> None:
        """How the next answer is written, and how this one is drafted for."""
        why, before = why_off(self.spec, self.rounds), self.status.info.why
        if why and not before and self.spec is not None and self.spec.kind != "off":
            self.status.give_hint(f"Nothing is drafted at present: {why}.")
        spec = switch(self.spec) if self.spec else ""
        self.status.info = Info(self.tuning.preset, self.tuning.sampling.fixed_seed, spec, why)

    async def receive(self, event: AnyEvent | None) -> None:
        if event is not None:
            self.tally.add(event)
            self.has_news = True
        match event:
            case Loading():
                self.enter("loading", loading_words(event))
            case Ready():
                await self.welcome_engine(event)
            case Steered():
                self.show_spec(event.spec)
            case Prefill() if self.phase == "reading":
                self.enter("reading", f"reading prompt {event.cached + event.done:,}/{event.total:,}")
            case Step():
                self.write(event)
            case Notice():
                await self.inform(event)
                self.lose_drafter(event)
            case Done():
                await self.finish(event)
            case Failure():
                await self.fail(event)
            case None:
                await self.lose_engine()

    async def welcome_engine(self, ready: Ready) -> None:
        self.exit_code = 0
        self.model, self.drafter_failed, self.device_bytes = ready.model, False, ready.memory.device_bytes
        self.pace.share = SHARE if ready.model.device == "cpu" else SPARE_SHARE
        self.wish = wish_at_start(ready.spec)
        self.show_spec(ready.spec)
        self.scribe.meet(ready)
        self.enter("idle", "idle")
        await self.ask_next()

    def lose_drafter(self, notice: Notice) -> None:
        if notice.code == "drafter_failed" and self.model is not None:
            self.drafter_failed = True
            self.scribe.lose_drafter()
            self.show_spec(SpecCard("off", reason="it failed"))
            self.refresh_bindings()

    def show_spec(self, spec: SpecCard) -> None:
        """A drafter that failed stays out, whatever the engine says of the wish."""
        if self.model is not None and not (self.drafter_failed and spec.kind != "off"):
            self.spec = spec
            self.header.show(self.model, spec, self.tuning.template)
            self.show_info()

    async def lose_engine(self) -> None:
        if self.answer is not None:
            await self.fail(Failure(code="engine_died", message="The engine stopped."))
        self.enter("gone", with_keys(self, NOT_LOADED if self.exit_code else DIED))

    def enter(self, phase: Phase, words: str) -> None:
        if phase not in {self.phase, "generating"}:  # the first word of an answer contradicts no hint
            self.status.end_hint()
        could_reload = self.can_reload
        self.phase, self.status.state = phase, words
        self.prompt.cursor_blink = not self.answering  # to blink costs the model
        self.name_terminal()
        if self.can_reload != could_reload:
            self.refresh_bindings()

    def name_terminal(self) -> None:
        """State and chat, for whoever looks at another window."""
        state = self.phase if self.phase in {"gone", "unloaded"} else self.status.state
        self.app.title = f"{state} · {self.title or 'localspec'}"

    # --- a turn

    async def on_prompt_sent(self, message: Prompt.Sent) -> None:
        self.status.end_hint()  # it was about what was sent before
        if (typed := parse(message.text)) is not None:
            self.prompt.pills.add(*message.attachments)
            await self.obey(message.text, *typed)
        else:
            await self.say(literal(message.text), message.attachments)

    def claims(self, _event: Key) -> bool:
        """Whether a key pressed on the empty prompt is a command here instead."""
        return False

    def on_prompt_refused(self, message: Prompt.Refused) -> None:
        self.status.give_hint(one_line(message.sentence))

    async def obey(self, text: str, name: str, argument: str) -> None:
        """A slash command: it is never sent to the model, not even one that does not exist. It is over before what was
        typed after it is read."""
        command = find(name)
        if command is None:
            self.prompt.give(text)
            self.status.give_hint(unknown(name))
        else:
            done = getattr(self, command.method)(argument)
            if isawaitable(done):
                await done

    async def say(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """Ask this, or let it wait until it can be asked."""
        if self.phase == "unloaded":
            self.load()
        if self.queued is not None or self.phase == "gone":
            self.prompt.give(text, attachments)
            self.status.give_hint(
                WAITING if self.queued is not None else f"{self.status.state} Your message stays here."
            )
            return
        self.queued = self.conversation.ask(text, attachments)
        self.scribe.ask(self.queued, self.tally.stats)
        if self.phase != "idle":
            self.transcript.question(self.queued).wait()
        await self.show_branch()
        if self.phase == "idle":
            await self.ask_next()

    async def show_branch(self) -> None:
        """Its end, and what is said there from now on."""
        await self.transcript.show(self.conversation.branch)
        self.transcript.anchor()

    async def ask_next(self) -> None:
        """Ask what waits, if anything does."""
        if self.queued is not None and self.feed is not None:
            question, self.queued = self.queued, None
            self.transcript.question(question).asked()
            await self.generate(question, self.feed)

    async def generate(self, question: Utterance, feed: Feed) -> None:
        """An answer to this, below it."""
        said = self.conversation.answer(question, self.model.name if self.model else "")
        self.said, self.answer, self.rounds = said, self.transcript.answer(said), said.rounds
        self.title = self.title or first_line(question.text)
        self.enter("reading", "reading prompt")  # before the answer is mounted: idle must mean that nothing is asked
        self.tally.begin()
        self.scribe.answer(said, self.tuning.params)
        self.locate()
        await self.transcript.show(self.conversation.branch)
        self.ask(self.conversation.request(question), feed)

    def ask(self, request: GenerateRequest, feed: Feed) -> None:
        """A stop that came while this was being prepared is meant for it."""
        feed.ask(replace(request, odds=self.view == "rejects"))
        if self.phase == "stopping":
            feed.cancel()

    def write(self, step: Step) -> None:
        if self.phase == "reading":
            self.pace.start()
            self.enter("generating", "generating")
        if self.said is not None and self.answer is not None:
            self.answer.add(step)
            self.scribe.add(step)
            if self.scribe.is_due:
                self.scribe.save(self.tally.stats)
            self.said.text = self.answer.text

    async def finish(self, done: Done) -> None:
        words = "stopped" if self.answer is not None and done.finish_reason == "cancelled" else "idle"
        if self.answer is not None:
            await self.answer.finish(self.scribe.whole(done.stats))
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

    def end_turn(self, reason: FinishReason) -> None:
        """Remember what was said; the next turn may begin."""
        made = self.scribe.end(self.tally.stats, reason)
        if self.said is not None and self.answer is not None:
            self.said.made, (self.said.line, self.said.how) = made, self.answer.ending
        self.said = self.answer = None
        self.call_after_refresh(collect)  # the engine rests and nothing is drawn

    async def show(self, widget: Widget) -> None:
        """Add to the transcript: a message that waits stays last, and a note comes before an answer not begun."""
        unbegun = self.answer if isinstance(widget, Note) and self.answer is not None and not self.answer.text else None
        waiting = self.transcript.widget(self.queued) if self.queued is not None else None
        later = next((w for w in (unbegun, waiting) if w is not None and w.is_attached), None)
        await self.transcript.mount(widget, before=later)

    @property
    def busy(self) -> bool:
        """An answer is being written or waited for: the conversation must not change under it."""
        return self.answer is not None or self.queued is not None

    @property
    def answering(self) -> bool:
        return self.phase in {"reading", "generating"}

    @property
    def can_reload(self) -> bool:
        return self.phase in {"gone", "unloaded"} or (self.phase == "idle" and self.drafter_failed)

    def stop_answer(self) -> None:
        if self.answering and self.feed is not None:
            self.enter("stopping", "stopping")
            self.feed.cancel()

    async def take_back(self) -> None:
        """The message that waits returns to the prompt."""
        if self.queued is not None:
            question, self.queued = self.queued, None
            self.prompt.give(question.text, question.attachments)
            self.conversation.take_back(question)
            self.scribe.remove(question, self.conversation.head)
            await self.show_branch()

    async def break_off(self) -> None:
        """The answer ends here, stopped and saved."""
        self.stop_answer()
        if self.answer is not None:
            await self.answer.finish(self.scribe.whole(replace(self.tally.stats, finish_reason="cancelled")))
            self.end_turn("cancelled")

    async def begin_chat(self) -> None:
        await self.take_back()
        await self.break_off()
        self.scribe.leave()
        self.conversation.forget()
        await self.begin_with(None)

    async def open_chat(self, past: OpenChat) -> None:
        """Go on in a chat that was kept; what waits to be asked in this one goes back to the prompt."""
        await self.take_back()
        await self.break_off()
        self.scribe.open(past.chat)
        self.conversation.recall(past.chat, remembered(past))
        await self.begin_with(past)

    async def begin_with(self, past: OpenChat | None) -> None:
        """The screen as it is at the start, whatever was said in another chat."""
        self.past, self.status.stats, self.rounds = past, Stats(), ()
        self.title = past.chat.title if past else ""
        self.name_terminal()
        self.follow_figures()
        self.locate()
        await self.show_chat()

    def locate(self) -> None:
        """Be told where in the history the chat is, once that is known."""
        self.scribe.locate(lambda chat_id: self.post_message(Kept(chat_id)))

    # --- what was said on the branch, in sight or not

    @property
    def spoken(self) -> list[Utterance]:
        """By user and model."""
        return [said for said in self.conversation.branch if said.role != "system"]

    def texts(self) -> list[str]:
        return [said.text for said in self.spoken]
