"""The engine behind the server: loaded, asked several requests at once, unloaded when idle, loaded again when it dies.

Lives in one event loop; a thread reads each engine's events. Knows no HTTP and no queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Thread
from time import time
from typing import Literal, Protocol

import msgspec

from localspec.core.errors import ENGINE_STOPPED, EngineDied
from localspec.core.events import AnyEvent, Done, Failure, Loading, Notice, Ready
from localspec.core.requests import GenerateRequest
from localspec.serve.faults import loading, not_loaded

State = Literal["unloaded", "loading", "waking", "ready", "failed", "closed"]
STARTING = Loading("starting the engine", 0, 1, "steps")  # until it says more, which takes seconds
STOPPED = Failure("engine_stopped", "The server was stopped.")
ENDED = Failure(EngineDied.code, ENGINE_STOPPED)
AGAIN = "It is being loaded again; ask again."
DIED = Notice("warning", "engine_died", "The engine ended, and is loaded again.")
DIED_AGAIN = Notice("warning", "engine_died", "The engine ended again without an answer.", "The next request loads it.")
UNLOADED = Notice(
    "info", "unloaded", "There was no request for a while: the model was unloaded.", "The next request loads it."
)


class ServedEngine(Protocol):
    """What the server needs of an engine, wherever it runs."""

    def start(self) -> None: ...
    def numbered(self) -> Iterator[tuple[int | None, AnyEvent]]: ...
    def ask(self, request: GenerateRequest) -> int: ...
    def cancel(self, number: int) -> None: ...
    def close(self) -> None: ...


class ServedAnswer:
    """One answer under way, by its number. `over` is called once, when its slot is free again."""

    def __init__(self, engine: ServedEngine, number: int, over: Callable[[], object]) -> None:
        self._engine, self.number, self._over = engine, number, over
        self._events: asyncio.Queue[AnyEvent | None] = asyncio.Queue()
        self.is_over = False

    async def next(self) -> AnyEvent | None:
        """The next event; None after the last."""
        return await self._events.get()

    def cancel(self) -> None:
        """The engine stops before its next forward; Done is then the last event."""
        if not self.is_over:
            self._engine.cancel(self.number)

    def put(self, event: AnyEvent) -> None:
        self._events.put_nowait(event)
        if isinstance(event, Done | Failure):
            self.is_over = True
            self._events.put_nowait(None)
            self._over()


class Host:
    """`make` is called for every load. `ttl`: seconds without a request until the model is unloaded. `changed` is
    called with every change of state, `failed` where the first load fails, `seen` with every event of loading."""

    def __init__(
        self,
        make: Callable[[], ServedEngine],
        *,
        ttl: float | None = None,
        changed: Callable[[], object] = lambda: None,
        failed: Callable[[Failure], object] = lambda _: None,
        seen: Callable[[AnyEvent], object] = lambda _: None,
    ) -> None:
        self._make, self._ttl = make, ttl
        self._changed, self._failed, self._seen = changed, failed, seen
        self.state: State = "unloaded"
        self.progress = STARTING
        self.ready: Ready | None = None
        self.failure = ENDED
        self.starts = 0
        self.settled = asyncio.Event()
        self._engine: ServedEngine | None = None
        self._answers: dict[int, ServedAnswer] = {}  # under way, by number
        self._idle: asyncio.TimerHandle | None = None
        self.until: float | None = None  # when it is unloaded, if nothing is asked
        self._is_fragile = False  # it was loaded because it had died, and has answered nothing since

    # --- what the server asks

    def start(self) -> None:
        """Begin loading; requests are refused until it is ready."""
        self._load("loading")

    def check_loaded(self) -> None:
        """RequestRefused while it loads, as llama-server does; one that is unloaded is loaded for the request."""
        if self.state == "loading":
            raise loading(self.progress)

    def wake(self) -> None:
        """Begin loading if it is unloaded, or if it could not be loaded; requests wait for it."""
        if self.state in ("unloaded", "failed"):
            self._load("waking")

    @property
    def is_settled(self) -> bool:
        return self.state not in ("loading", "waking")

    @property
    def is_out_of_order(self) -> bool:
        """Whether waiting for it leads nowhere."""
        return self.state in ("failed", "closed")

    @property
    def parallel(self) -> int:
        """How many answers the engine writes at once, as far as that is known."""
        return self.ready.parallel if self.ready is not None else 1

    def ask(self, request: GenerateRequest, over: Callable[[], object]) -> ServedAnswer:
        """Starts an answer; RequestRefused where the model could not be loaded."""
        if self.state != "ready" or self._engine is None:
            raise not_loaded(self.failure)
        self._stay()
        answer = ServedAnswer(self._engine, self._engine.ask(request), over)
        self._answers[answer.number] = answer
        return answer

    def close(self) -> None:
        """End the engine; answers under way end with a Failure."""
        self._stay()
        self.failure = STOPPED
        self._drop("closed", STOPPED)

    # --- what happens

    def _load(self, state: State) -> None:
        self._stay()
        self.progress = STARTING
        self.settled.clear()
        self._engine = engine = self._make()
        self.starts += 1
        self._enter(state)
        loop = asyncio.get_running_loop()
        Thread(target=read, args=(engine, loop, self._receive), name="engine", daemon=True).start()

    def _receive(self, engine: ServedEngine, event: AnyEvent | None, number: int | None = None) -> None:
        """Takes an event in the loop; those of an engine that was replaced are ignored."""
        if engine is not self._engine:
            return
        match event:
            case None:
                self._gone(ENDED)
            case _ if number is not None:
                self._put(number, event)
            case Failure() if self.state != "ready" or event.code == EngineDied.code:
                self._gone(event)
            case Loading():
                self.progress = event
                self._seen(event)
            case Ready():
                self.ready = event
                self._seen(event)
                self._go_idle()
                self._enter("ready")
            case Notice():
                self._seen(event)

    def _put(self, number: int, event: AnyEvent) -> None:
        answer = self._answers[number]
        if isinstance(event, Done | Failure):
            del self._answers[number]
            self._is_fragile = False
            if not self._answers:
                self._go_idle()
        answer.put(event)

    def _gone(self, failure: Failure) -> None:
        """The engine ended: what it answered fails, and it is loaded again; twice without an answer is too often."""
        self.failure = failure
        if self.state == "ready":
            self._seen(DIED_AGAIN if self._is_fragile else DIED)
            again = msgspec.structs.replace(failure, hint=AGAIN)
            self._drop("unloaded", again, reload=not self._is_fragile)
        else:
            self._drop("failed", failure)
            if self.ready is None:
                self._failed(failure)
            else:
                self._seen(Notice("warning", failure.code, failure.message, "The next request tries again."))

    def _drop(self, state: State, failure: Failure, *, reload: bool = False) -> None:
        engine, self._engine = self._engine, None
        answers, self._answers = self._answers, {}
        if engine is not None:
            Thread(target=engine.close, name="engine-close", daemon=False).start()
        self._enter(state)
        if reload:
            self._is_fragile = True
            self._load("loading")
        for answer in answers.values():
            answer.put(failure)

    def _enter(self, state: State) -> None:
        self.state = state
        if self.is_settled:
            self.settled.set()
        self._changed()

    # --- idle

    def _go_idle(self) -> None:
        self._stay()
        if self._ttl is not None:
            self._idle = asyncio.get_running_loop().call_later(self._ttl, self._unload)
            self.until = time() + self._ttl

    def _unload(self) -> None:
        self._stay()
        self._drop("unloaded", STOPPED)
        self._seen(UNLOADED)

    def _stay(self) -> None:
        self.until = None
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


def read(engine: ServedEngine, loop: asyncio.AbstractEventLoop, receive: Callable[..., None]) -> None:
    """Runs in a thread: starts the engine and hands its events to the loop, then None."""

    def push(event: AnyEvent | None, number: int | None = None) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(receive, engine, event, number)

    try:
        engine.start()
        for number, event in engine.numbered():
            push(event, number)
    except Exception as fault:  # whatever it is, the server must hear that the engine is gone
        push(Failure(EngineDied.code, f"The engine could not be started ({type(fault).__name__})."))
    push(None)
