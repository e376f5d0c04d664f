"""The engine in a child process: requests in, events out, over one pipe; ending the child is the unload.

The child is spawned, speaks msgpack, one message an event, and prints into a log file. Knows no screen. The parent's
side imports no torch.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import pkgutil
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import TYPE_CHECKING, Any  # Any: a sampling option has a type of its own

import msgspec

from localspec.core import paths
from localspec.core.drain import drain
from localspec.core.errors import ContextOverflow, EngineDied, LocalspecError, UsageError
from localspec.core.events import AnyEvent, Failure, Ready, Steered
from localspec.core.plain_file import plain
from localspec.core.requests import (
    SAMPLING_FIELDS,
    ChangeDrafter,
    GenerateRequest,
    LoadRequest,
    SamplingOptions,
    SpecWish,
)
from localspec.core.sanitize import clean

if TYPE_CHECKING:
    from localspec.runtime.model import Model

SPAWN = multiprocessing.get_context("spawn")
EVENTS = msgspec.msgpack.Decoder(AnyEvent)
Request = GenerateRequest | SpecWish | ChangeDrafter
MESSAGES = msgspec.msgpack.Decoder(tuple[Request, dict[str, Any]])
ENCODE = msgspec.msgpack.Encoder().encode
OPEN_MODEL = "localspec.runtime.open:open_model"
MOST_LOG_BYTES = 1 << 20  # then the next start begins another, and keeps this one beside it
DIED = Failure(EngineDied.code, "The engine stopped.", "Load it again; what was written is kept.", EngineDied.exit_code)


class EngineProcess:
    """The parent's end. `events` blocks and belongs to one thread; all else may be called from any.

    `opener` names what makes the model in the child, so that the parent need not import it.
    """

    def __init__(self, request: LoadRequest, opener: str = OPEN_MODEL) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._theirs: Connection | None = theirs
        # The number of the last answer to be stopped: a flag would be lost between two answers.
        self._stopped: Synchronized[int] = SPAWN.Value("q", -1)
        # How many requests to steer were ever sent: cheaper to read than the pipe.
        self._sent: Synchronized[int] = SPAWN.Value("q", 0)
        self._asked = -1
        self._lock = threading.Lock()
        self._closed = False
        log = log_file()
        shared = (self._stopped, self._sent)
        self._process = SPAWN.Process(target=child, args=(theirs, shared, request, opener, log), daemon=True)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def start(self) -> None:
        """Spawn the child, which begins loading; returns at once."""
        self._process.start()
        if self._theirs is not None:
            self._theirs.close()  # else the parent would never see the end of the pipe
            self._theirs = None

    def events(self) -> Iterator[AnyEvent]:
        """The child's events until it ends; then Failure, unless it was closed on purpose."""
        event: AnyEvent | None = None
        ready = False
        while True:
            try:
                event = EVENTS.decode(self._pipe.recv_bytes())
            except (EOFError, OSError, msgspec.DecodeError):
                reported = isinstance(event, Failure) and (not ready or event.code == EngineDied.code)
                if not self._closed and not reported:
                    yield DIED
                return
            ready = ready or isinstance(event, Ready)
            yield event

    def ask(self, request: GenerateRequest) -> None:
        """Queues an answer; a child that has ended says so through `events`."""
        with self._lock:
            self._asked += 1
            with suppress(OSError):
                self._pipe.send_bytes(packed(request))

    def steer(self, wish: SpecWish) -> None:
        """Changes how the next rounds draft; the event Steered confirms it."""
        with self._lock, suppress(OSError):
            self._pipe.send_bytes(packed(wish))
            self._sent.value += 1

    def change_drafter(self, asked: ChangeDrafter) -> None:
        """Queues another drafter, behind the answers asked for before; the event Ready confirms it."""
        with self._lock, suppress(OSError):
            self._pipe.send_bytes(packed(asked))

    def cancel(self) -> None:
        """The answer asked for last ends before its next forward."""
        self._stopped.value = self._asked

    def close(self) -> None:
        """End the child. Twice does no harm."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()
        self._pipe.close()


def packed(message: Request) -> bytes:
    """A message to the child. Sampling options go beside it, unchecked: one out of range is then a UsageError of the
    answer, and not a message that cannot be decoded."""
    if not isinstance(message, GenerateRequest):
        return ENCODE((message, {}))
    given = {name: float(value) if is_float(name) else value for name, value in message.sampling.given.items()}
    return ENCODE((msgspec.structs.replace(message, sampling=SamplingOptions()), given))


def is_float(option: str) -> bool:
    return SAMPLING_FIELDS[option].kind is float


def unpacked(content: bytes) -> Request:
    message, given = MESSAGES.decode(content)
    return msgspec.structs.replace(message, sampling=SamplingOptions(**given)) if given else message


class Inbox:
    """The parent's messages, in order; a SpecWish can be taken early, between two rounds, and requests then wait."""

    def __init__(self, pipe: Connection, sent: Synchronized[int]) -> None:
        self._pipe, self._sent = pipe, sent
        self._waiting: deque[GenerateRequest | ChangeDrafter] = deque()
        self._taken = 0

    def next(self) -> Request:
        return self._waiting.popleft() if self._waiting else self._receive()

    def wishes(self) -> Iterator[SpecWish]:
        """The requests to change speculation that have arrived."""
        while self._taken < self._sent.value:
            match self._receive():
                case SpecWish() as wish:
                    yield wish
                case request:
                    self._waiting.append(request)

    def _receive(self) -> Request:
        message = unpacked(self._pipe.recv_bytes())
        self._taken += isinstance(message, SpecWish)
        return message


def child(
    pipe: Connection,
    shared: tuple[Synchronized[int], Synchronized[int]],
    request: LoadRequest,
    opener: str,
    log: str,
) -> None:
    """The child's life: load, then answer until the pipe closes."""
    quieten(log)
    stopped, sent = shared
    inbox, asked = Inbox(pipe, sent), 0
    try:
        model = load(pipe, request, opener)
        while True:
            match inbox.next():
                case SpecWish() as wish:
                    tell(pipe, Steered(model.steer(wish)))
                case ChangeDrafter() as drafter:
                    for event in to_the_end(model.change_drafter(drafter)):
                        tell(pipe, event)
                case GenerateRequest() as message:
                    answer(inbox, pipe, model, message, lambda number=asked: stopped.value >= number)  # type: ignore[misc]
                    asked += 1
    except (EOFError, OSError):
        pass  # the parent is gone
    except Exception as fault:
        tell(pipe, failure(fault))


class CleanLog(io.TextIOWrapper):
    """A log file without control characters."""

    def write(self, text: str) -> int:
        super().write(clean(text))
        return len(text)


def quieten(log: str) -> None:
    """Redirects whatever libraries print to the end of the log; Ctrl+C is left to the parent.

    What native code writes past Python goes there as it comes."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        if os.path.getsize(log) > MOST_LOG_BYTES:
            os.replace(log, f"{log}.1")
    file = CleanLog(open(log, "ab"), encoding="utf-8", line_buffering=True)  # noqa: SIM115 - open until the child ends
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
    sys.stdout = sys.stderr = file
    print(f"--- {datetime.now():%Y-%m-%d %H:%M:%S}, process {os.getpid()}")


def load(pipe: Connection, request: LoadRequest, opener: str) -> Model:
    model: Model = drain(pkgutil.resolve_name(opener)(request), lambda event: tell(pipe, event))
    return model


def answer(
    inbox: Inbox, pipe: Connection, model: Model, request: GenerateRequest, cancelled: Callable[[], bool]
) -> None:
    """Sends one answer's events; between two rounds it applies the requests that have arrived."""
    for event in to_the_end(model.answer(request, cancelled)):
        tell(pipe, event)
        for wish in inbox.wishes():
            tell(pipe, Steered(model.steer(wish)))


def to_the_end(events: Iterator[AnyEvent]) -> Iterator[AnyEvent]:
    """The events; an error becomes a Failure and the engine lives on, unless it is EngineDied."""
    try:
        yield from events
    except EngineDied:
        raise
    except Exception as fault:
        yield failure(fault)


def failure(fault: Exception) -> Failure:
    """An error as a reader sees it; the traceback of a foreign one goes to the log."""
    if isinstance(fault, LocalspecError):
        over = (fault.turns_over, fault.prompt_n) if isinstance(fault, ContextOverflow) else ()
        return Failure(fault.code, fault.message, fault.hint, fault.exit_code, *over)
    import traceback

    traceback.print_exception(fault)
    log = log_file()
    details = f"Details are in {log}." if log != os.devnull else "Set LOCALSPEC_STATE_DIR to a folder to see details."
    return Failure("engine", f"The engine failed ({type(fault).__name__}).", details, 1)


def log_file(log_of: Callable[[], Path] = paths.engine_log) -> str:
    """The file that the child prints into; os.devnull without a folder to write in."""
    try:
        log = log_of()
        if log.exists():
            plain(log)
        log.open("a").close()
    except (OSError, UsageError):
        return os.devnull
    return str(log)


def tell(pipe: Connection, event: AnyEvent) -> None:
    pipe.send_bytes(ENCODE(event))
