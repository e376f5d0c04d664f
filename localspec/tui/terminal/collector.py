"""Schedules garbage collection, since a full collection holds the screen for longer than a frame. Knows no widget.

Saves 0.04 of a core; the longest frame takes 58 ms, and took 172 without it (docs/textual.md).
"""

from __future__ import annotations

import gc
from asyncio import TimerHandle
from collections.abc import Callable

from textual._styles_cache import StylesCache
from textual.message_pump import MessagePump

from localspec.tui.terminal.timer import once

YOUNG = 10_000, 5  # a frame makes and drops tens of thousands of objects: Python would look through them 70 times
NEVER = 1_000_000
REST_SECONDS = 1.0  # since the last key
MOST_REQUESTS = 5  # for one who pages on and on


def collect_at_rest() -> None:
    """Turns automatic full collections off: each takes longer than a frame may. Objects that exist by now are never
    examined again, and only a `Collector` begins a collection."""
    gc.freeze()
    gc.set_threshold(*YOUNG, NEVER)
    gc.enable()


class Collector:
    """Collects garbage on request, once no key has been pressed for a while. It does not while the chat is `busy`:
    whoever ends that requests it again."""

    def __init__(self, pump: MessagePump, busy: Callable[[], bool]) -> None:
        self._pump, self._busy = pump, busy
        self._requests = 0
        self._timer: TimerHandle | None = None

    def request(self) -> None:
        """Asks for a collection: there is something to free."""
        self._requests += 1
        self._wait()

    def put_off(self) -> None:
        """Waits longer, as a key was pressed."""
        if 0 < self._requests < MOST_REQUESTS:
            self._wait()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = once(self._pump, REST_SECONDS, self._collect)

    def _collect(self) -> None:
        if not self._busy():
            self._requests = 0
            collect()


def collect() -> None:
    """Textual remembers backgrounds by the widget they are of, and so keeps the last thousand that were drawn, with
    every line: messages that are far from the window, chats that were left. A collection walks through all of it."""
    StylesCache.get_inner_outer.cache_clear()
    gc.collect()
