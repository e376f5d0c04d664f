"""The chat's one screen: what the user does goes to the engine, what the engine says goes to the transcript.

Knows no engine but the five calls of `Engine`, and no history but its scribe. Everything that changes a turn runs in
the screen's own message queue, one at a time, so a stop, a new chat and a burst of tokens cannot interleave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Literal

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, HelpPanel, Static

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
from localspec.history import OpenChat
from localspec.stats import Tally
from localspec.tui.feed import Arrived, Engine, Feed
from localspec.tui.header import Header
from localspec.tui.legend import Legend
from localspec.tui.message import Answer, Note, Question
from localspec.tui.pace import Pace
from localspec.tui.past import conversation, remembered
from localspec.tui.prompt import Prompt
from localspec.tui.scribe import SAVE_SECONDS, Scribe, Told
from localspec.tui.speed_panel import LEAST_WIDTH, Reading, SpeedPanel
from localspec.tui.stats_line import StatsLine, loading_words
from localspec.tui.token_view import View
from localspec.tui.welcome import Welcome

Phase = Literal["loading", "idle", "reading", "generating", "stopping", "gone"]

QUIT_SECONDS = 1.0
MIN_WIDTH, MIN_HEIGHT = 60, 16
DIED = "The engine stopped. Press Ctrl+R to load it again."
NOT_LOADED = "The model is not loaded. Press Ctrl+R to try again."
WAITING = "One message is waiting already; this one stays here."
QUIT_AGAIN = "Press Ctrl+C again to quit."


class ChatScreen(Screen[None]):
    """Header, transcript beside the speed panel, state line, prompt."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop", key_display="Esc", priority=True, id="stop"),
        Binding("ctrl+n", "new", "New chat", key_display="^N", priority=True, id="new"),
        Binding("ctrl+r", "reload", "Reload", key_display="^R", priority=True, id="reload"),
        Binding("f2", "speed", "Speed", key_display="F2", priority=True, id="speed"),
        Binding("f3", "tokens", "Tokens", key_display="F3", priority=True, id="tokens"),
        Binding("shift+f3,f15", "rejects", "Rejected", show=False, priority=True, id="rejects"),  # F15 is xterm's
        Binding("ctrl+c", "interrupt", "Interrupt", show=False, priority=True, id="interrupt"),
        Binding("ctrl+d", "leave", "Quit", show=False, priority=True, id="leave"),
        Binding("pageup", "page(-1)", "Page up", show=False, priority=True, id="page.up"),
        Binding("pagedown", "page(1)", "Page down", show=False, priority=True, id="page.down"),
    ]

    view: reactive[View] = reactive("markdown", init=False)

    def __init__(
        self, make_engine: Callable[[], Engine], system: str | None, *, scribe: Scribe, past: OpenChat | None
    ) -> None:
        super().__init__()
        self.make_engine, self.scribe, self.past = make_engine, scribe, past
        self.conversation = conversation(past, system)
        self.exit_code = 0
        self.phase: Phase = "loading"
        self.model: ModelCard | None = None
        self.drafter_failed = False
        self.tally, self.pace = Tally(), Pace()
        self.feed: Feed | None = None
        self.queued: Question | None = None
        self.question = ""  # the one being answered
        self.answer: Answer | None = None
        self.rounds: Sequence[Step] = ()  # of the last answer

    def compose(self) -> ComposeResult:
        self.header = Header()
        self.transcript = VerticalScroll(*remembered(self.past), id="transcript", can_focus=False)
        self.status, self.prompt = StatsLine(), Prompt()
        self.speed, self.legend = SpeedPanel(self.reading), Legend()
        self.too_small = Static(markup=False, id="too-small")
        yield from (self.header, Horizontal(self.transcript, self.speed, id="middle"), self.legend)
        yield from (self.status, self.prompt)
        yield Footer(show_command_palette=False)
        yield self.too_small

    def on_mount(self) -> None:
        self.transcript.anchor()
        self.prompt.focus()
        self.scribe.start(lambda notice: self.post_message(Told(notice)))
        self.set_interval(SAVE_SECONDS, lambda: self.scribe.save(self.tally.stats))
        self.load()

    def on_unmount(self) -> None:
        self.scribe.end(self.tally.stats, "cancelled")
        if self.feed is not None:
            self.feed.engine.close()

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        self.speed.settle(width)
        self.too_small.display = width < MIN_WIDTH or height < MIN_HEIGHT
        self.too_small.update(
            f"The terminal is {width}×{height}; localspec needs {MIN_WIDTH}×{MIN_HEIGHT}: enlarge it."
        )

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
        if self.answer is not None:
            await self.answer.flush()
        self.status.stats = self.tally.stats if self.answer or self.conversation.history else Stats()
        if arrived:
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
        if self.queued is not None or self.phase == "gone":
            self.prompt.give(message.text)
            self.status.give_hint(
                WAITING if self.queued is not None else f"{self.status.state} Your message stays here."
            )
            return
        self.queued = Question(message.text, queued=self.phase != "idle")
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
        self.question, self.answer = question.text, Answer(self.model.name if self.model else "")
        self.answer.view, self.rounds = self.view, self.answer.rounds
        self.enter("reading", "reading prompt")  # before the answer is mounted: idle must mean that nothing is asked
        self.tally.begin()
        self.scribe.ask(question.text)
        await self.show(self.answer)
        self.feed.ask(self.conversation.request(question.text))

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

    # --- keys

    @property
    def answering(self) -> bool:
        return self.phase in {"reading", "generating"}

    @property
    def can_reload(self) -> bool:
        return self.phase == "gone" or (self.phase == "idle" and self.drafter_failed)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.can_reload if action == "reload" else super().check_action(action, parameters)

    def stop_answer(self) -> None:
        if self.answering and self.feed is not None:
            self.enter("stopping", "stopping")
            self.feed.cancel()

    def action_stop(self) -> None:
        """Esc: stop the answer, else close what lies over the chat, else take back the message that waits."""
        if self.answering:
            self.stop_answer()
        elif self.query(HelpPanel):
            self.app.action_hide_help_panel()
        elif self.speed.covers:
            self.action_speed()
        elif self.queued is not None and not self.prompt.text:
            self.call_later(self.take_back)

    def action_speed(self) -> None:
        self.speed.toggle(self.size.width)
        if self.size.width < LEAST_WIDTH:
            self.status.give_hint(f"The speed panel needs {LEAST_WIDTH} columns.")

    def action_tokens(self) -> None:
        self.view = "tokens" if self.view == "markdown" else "markdown"

    def action_rejects(self) -> None:
        self.view = "tokens" if self.view == "rejects" else "rejects"

    def watch_view(self, view: View) -> None:
        self.legend.display = view != "markdown"
        for answer in self.query(Answer):
            answer.view = view

    async def take_back(self) -> None:
        """The message that waits returns to the prompt."""
        if self.queued is not None:
            question, self.queued = self.queued, None
            self.prompt.give(question.text)
            await question.remove()

    def action_new(self) -> None:
        self.call_later(self.begin_chat)

    async def begin_chat(self) -> None:
        self.stop_answer()
        if self.answer is not None:
            await self.answer.end()
        self.scribe.end(self.tally.stats, "cancelled")
        self.scribe.leave()
        self.answer = self.queued = None
        self.conversation.forget()
        self.status.stats, self.rounds = Stats(), ()
        self.speed.refresh()
        await self.transcript.remove_children()
        await self.transcript.mount(Welcome())

    def action_reload(self) -> None:
        self.call_later(self.load)

    def action_interrupt(self) -> None:
        """Ctrl+C: copy, else stop, else clear, else quit at the second time."""
        if selected := self.prompt.selected_text or self.get_selected_text():
            self.app.copy_to_clipboard(selected)
            self.clear_selection()
            self.prompt.move_cursor(self.prompt.cursor_location)
            self.status.give_hint("Copied.", QUIT_SECONDS)
        elif self.answering:
            self.stop_answer()
        elif self.prompt.text:
            self.prompt.take()
        elif self.status.hint == QUIT_AGAIN:
            self.call_later(self.app.action_quit)
        else:
            self.status.give_hint(QUIT_AGAIN, QUIT_SECONDS)

    async def action_leave(self) -> None:
        """Ctrl+D: quits on an empty prompt, deletes to the right otherwise."""
        if self.prompt.text:
            self.prompt.action_delete_right()
        else:
            await self.app.action_quit()

    def action_page(self, direction: int) -> None:
        scroll = self.transcript.scroll_page_up if direction < 0 else self.transcript.scroll_page_down
        scroll(animate=False)
