"""The engine of the chat: begun, listened to, given up. What it says of an answer is a subclass's.

Knows no engine but the six calls of `Engine`.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from functools import partial

from textual.widget import Widget

from localspec.core.events import AnyEvent, Failure, Loading, Notice, Ready, SpecCard, Steered
from localspec.core.requests import SpecWish
from localspec.history import OpenChat
from localspec.runtime.stats import Tally
from localspec.tui.chat.recorder import Scribe, Told
from localspec.tui.control.feed import Arrived, Engine, Feed
from localspec.tui.control.speculation import lack, wish_at_start
from localspec.tui.control.state import StateScreen
from localspec.tui.control.tuning import Tuning
from localspec.tui.keys.key_names import with_keys
from localspec.tui.markdown.pace import SHARE, SPARE_SHARE, Pace
from localspec.tui.panels.stats_line import loading_words
from localspec.tui.terminal.timer import once
from localspec.tui.transcript.markers import Note

DIED = "The engine stopped. Press {reload} to load it again."
NOT_LOADED = "Not loaded: {reload} tries again, {models} another model."


class ListenScreen(StateScreen):
    """What has arrived is taken a frame at a time."""

    exit_code = 0
    feed: Feed | None = None
    look: TimerHandle | None = None  # the next one at what has arrived
    wish = SpecWish()  # what the engine was told last
    wished: SpecWish | None = None  # by the user, of this model and drafter

    def __init__(
        self,
        make_engine: Callable[[], Engine],
        system: str | None,
        *,
        scribe: Scribe,
        past: OpenChat | None,
        tuning: Tuning,
    ) -> None:
        super().__init__(system, scribe=scribe, past=past, tuning=tuning)
        self.make_engine = make_engine
        self.pace = Pace(1 / tuning.config.ui.max_fps)

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

    def wake(self, feed: Feed) -> None:
        """Called from the feed's thread."""
        self.post_message(Arrived(feed))

    async def on_arrived(self, message: Arrived) -> None:
        await self.drain(message.feed)

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
        return False

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
            case Notice():
                await self.inform(event)
                self.lose_drafter(event)
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
        if self.wished is not None and self.feed is not None and not lack(ready.spec):  # it was loaded again
            self.wish = self.wished
            self.feed.steer(self.wish)

    def lose_drafter(self, notice: Notice) -> None:
        if notice.code == "drafter_failed" and self.model is not None:
            self.drafter_failed = True
            self.scribe.lose_drafter()
            self.show_spec(SpecCard("off", reason="it failed"))
            self.refresh_bindings()

    async def lose_engine(self) -> None:
        self.enter("gone", with_keys(self, NOT_LOADED if self.exit_code else DIED))

    async def fail(self, failure: Failure) -> None:
        """Outside of an answer."""
        if self.phase == "loading":
            if self.exit_code and failure.code == "engine_died":
                return  # the reason has been said; that the engine then ended is no news
            self.exit_code = failure.exit_code
        await self.show(Note(sentence(failure), level="error"))

    # --- what it has to say

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

    async def show(self, widget: Widget) -> None:
        """Add to the transcript: a message that waits stays last, and a note comes before an answer not begun."""
        unbegun = self.answer if isinstance(widget, Note) and self.answer is not None and not self.answer.text else None
        waiting = self.transcript.widget(self.queued) if self.queued is not None else None
        later = next((w for w in (unbegun, waiting) if w is not None and w.is_attached), None)
        await self.transcript.mount(widget, before=later)


def sentence(failure: Failure) -> str:
    """Where the engine died, the state line says what to do as long as it is true."""
    hint = "" if failure.code == "engine_died" else failure.hint
    return f"{failure.message} {hint}".strip()
