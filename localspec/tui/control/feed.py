"""One engine's events on their way to the screen: read in a thread, taken in batches. Knows nothing about widgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Lock
from typing import Protocol

from textual.message import Message

from localspec.core.events import AnyEvent, Done, Failure
from localspec.core.requests import ChangeDrafter, GenerateRequest, SpecOptions


class ChatEngine(Protocol):
    """What the chat needs of an engine, wherever it runs."""

    def start(self) -> None: ...
    def events(self) -> Iterator[AnyEvent]: ...
    def ask(self, request: GenerateRequest) -> object: ...
    def steer(self, options: SpecOptions) -> None: ...
    def change_drafter(self, asked: ChangeDrafter) -> None: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...


class Arrived(Message):
    """The feed has something."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self.feed = feed


class Feed:
    """Wakes the screen once, then waits to be emptied, so that a burst costs one message and not hundreds. What ends an
    answer wakes it again: it need not wait for the next frame."""

    def __init__(self, engine: ChatEngine, wake: Callable[[Feed], None]) -> None:
        self.engine = engine
        self._wake = wake
        self._lock = Lock()
        self._waiting: list[AnyEvent | None] = []
        self._asleep = True

    def start(self) -> None:
        """Begin loading; an engine that cannot start says so as an event."""
        try:
            self.engine.start()
        except Exception as error:  # whatever it is, it must not take the screen with it
            self._push(Failure(code="engine_died", message=f"The engine could not be started: {error}"))

    def read(self) -> None:
        """Runs in a thread until the engine is gone, which arrives as None."""
        try:
            for event in self.engine.events():
                self._push(event)
        except Exception as error:  # as above: the text on the screen is worth more than this thread
            self._push(Failure(code="engine_died", message=f"The engine's answer could not be read: {error!r}"))
        self._push(None)

    def ask(self, request: GenerateRequest) -> None:
        with suppress(OSError):  # a pipe to a child that is gone; its end arrives as an event
            self.engine.ask(request)

    def steer(self, options: SpecOptions) -> None:
        with suppress(OSError):
            self.engine.steer(options)

    def change_drafter(self, asked: ChangeDrafter) -> None:
        with suppress(OSError):
            self.engine.change_drafter(asked)

    def cancel(self) -> None:
        with suppress(OSError):
            self.engine.cancel()

    def take(self) -> list[AnyEvent | None]:
        """Takes the events that have arrived. After an empty answer the next event wakes the screen again."""
        with self._lock:
            taken, self._waiting = self._waiting, []
            self._asleep = not taken
        return taken

    def _push(self, event: AnyEvent | None) -> None:
        with self._lock:
            self._waiting.append(event)
            wake, self._asleep = self._asleep or event is None or isinstance(event, Done | Failure), False
        if wake:
            self._wake(self)
