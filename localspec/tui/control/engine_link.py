"""The engine of the chat: loaded, listened to a frame at a time, replaced. Knows the calls of `ChatEngine` only."""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from functools import partial
from typing import Protocol

from textual.screen import Screen

from localspec.core.events import AnyEvent, Ready
from localspec.tui.control.feed import Arrived, ChatEngine, Feed
from localspec.tui.control.state import ChatState
from localspec.tui.markdown.pace import SHARE, SPARE_SHARE, Pace
from localspec.tui.terminal.timer import once


class Listener(Protocol):
    """Receives the engine's events: the chat screen."""

    def engine_replaced(self) -> None: ...

    async def receive(self, event: AnyEvent | None) -> None: ...

    async def draw(self) -> bool:
        """Show what was written and how fast; whether some of it has to wait for a later frame."""


class EngineLink:
    """Connects the screen with the engine: events are taken a frame at a time, in the screen's message queue."""

    feed: Feed | None = None
    look: TimerHandle | None = None  # until the next look at what has arrived

    def __init__(
        self,
        screen: Screen[None],
        state: ChatState,
        make_engine: Callable[[], ChatEngine],
        listener: Listener,
    ) -> None:
        self.screen, self.state, self.make_engine, self.listener = screen, state, make_engine, listener
        self.pace = Pace(1 / state.tuning.config.ui.max_fps)

    def load(self) -> None:
        """Close the engine there was, if any, and begin loading another."""
        self.listener.engine_replaced()
        self.close()
        self.state.begin_loading()
        self.feed = Feed(self.make_engine(), self.wake)
        self.state.enter("loading", "loading")
        self.state.show_info()
        self.feed.start()
        self.screen.run_worker(self.feed.read, thread=True, exit_on_error=False, group="engine")

    def close(self) -> None:
        if self.feed is not None:
            self.feed.engine.close()

    def wake(self, feed: Feed) -> None:
        """Called from the feed's thread."""
        self.screen.post_message(Arrived(feed))

    async def drain(self, feed: Feed) -> None:
        """Take what has arrived, then look again a frame later until nothing has."""
        if feed is not self.feed:  # an engine that was replaced
            return
        arrived = feed.take()
        for event in arrived:
            if self.screen.is_attached:  # else the app is ending: Textual takes no more widgets
                await self.listener.receive(event)
        if not self.screen.is_attached:
            return
        behind = await self.listener.draw()
        if self.state.answer is None:
            self.state.show_figures()
        if self.look is not None:
            self.look.cancel()
        if arrived or behind:
            self.look = once(self.screen, self.pace.wait(), partial(self.drain, feed))

    def welcome(self, ready: Ready) -> None:
        """Drawing leaves the processor to a model that runs on it."""
        self.pace.share = SHARE if ready.model.device == "cpu" else SPARE_SHARE
