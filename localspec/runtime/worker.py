"""The engine in a child process: requests in, events out, over one pipe; ending the child is the unload.

The child is spawned, speaks msgpack, one message an event with the number of its request, and prints into a log file.
It answers as many requests at once as it was loaded for. Knows no screen. The parent's side imports no torch.
"""

from __future__ import annotations

import ctypes
import io
import multiprocessing
import os
import pkgutil
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeAlias  # Any: a sampling option has a type of its own

import msgspec

from localspec.core.drain import drain
from localspec.core.errors import ENGINE_STOPPED, EngineDied
from localspec.core.events import AnyEvent, Failure, Ready, Steered
from localspec.core.requests import (
    SAMPLING_FIELDS,
    AnyRequest,
    ChangeDrafter,
    GenerateRequest,
    LoadRequest,
    SamplingOptions,
    SpecOptions,
)
from localspec.core.sanitize import clean
from localspec.runtime.failures import failure, log_file

if TYPE_CHECKING:
    from localspec.runtime.slots import Slots

SPAWN = multiprocessing.get_context("spawn")
Number: TypeAlias = ctypes.c_longlong  # in shared memory, without a lock: only the parent writes
Numbers: TypeAlias = ctypes.Array[ctypes.c_longlong]
EVENTS = msgspec.msgpack.Decoder(tuple[int | None, AnyEvent])
MESSAGES = msgspec.msgpack.Decoder(tuple[AnyRequest, dict[str, Any]])
ENCODE = msgspec.msgpack.Encoder().encode
OPEN_MODEL = "localspec.runtime.open:open_model"
MOST_OPEN = 1024  # requests that have no last event yet
MOST_LOG_BYTES = 1 << 20  # then the next start begins another, and keeps this one beside it
DIED = Failure(EngineDied.code, ENGINE_STOPPED, "Load it again; what was written is kept.", EngineDied.exit_code)


class EngineProcess:
    """The parent's end. `events` blocks and belongs to one thread; all else may be called from any.

    `opener` names what makes the model in the child, so that the parent need not import it.
    """

    def __init__(self, request: LoadRequest, opener: str = OPEN_MODEL) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._theirs: Connection | None = theirs
        # The numbers of answers to be stopped, each at its own position: a flag would be lost between two answers.
        self._stopped: Numbers = SPAWN.Array("q", [-1] * MOST_OPEN, lock=False)
        # How many messages were ever begun to be sent: cheaper to read than the pipe.
        self._sent: Number = SPAWN.Value("q", 0, lock=False)
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
        return (event for _, event in self.numbered())

    def numbered(self) -> Iterator[tuple[int | None, AnyEvent]]:
        """The same, each with the number of the request that it is of, if it is of one."""
        event: AnyEvent | None = None
        ready = False
        while True:
            try:
                number, event = EVENTS.decode(self._pipe.recv_bytes())
            except (EOFError, OSError, msgspec.DecodeError):
                reported = isinstance(event, Failure) and (not ready or event.code == EngineDied.code)
                if not self._closed and not reported:
                    yield None, DIED
                return
            ready = ready or isinstance(event, Ready)
            yield number, event

    def ask(self, request: GenerateRequest) -> int:
        """Queues an answer, and returns its number; a child that has ended says so through `events`."""
        with self._lock:
            self._asked += 1
            self._send(request)
            return self._asked

    def steer(self, options: SpecOptions) -> None:
        """Changes how the next rounds draft; the event Steered confirms it."""
        with self._lock:
            self._send(options)

    def change_drafter(self, asked: ChangeDrafter) -> None:
        """Queues another drafter, after the answers asked for before; the event Ready confirms it."""
        with self._lock:
            self._send(asked)

    def cancel(self, number: int | None = None) -> None:
        """The answer of this number, else the one asked for last, ends before its next forward."""
        number = self._asked if number is None else number
        self._stopped[number % MOST_OPEN] = number

    def _send(self, message: AnyRequest) -> None:
        self._sent.value += 1  # before it: the child reads on, and one that is longer than the pipe gets through
        with suppress(OSError):
            self._pipe.send_bytes(packed(message))

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


def packed(message: AnyRequest) -> bytes:
    """A message to the child. Sampling options go beside it, unchecked: one out of range is then a UsageError of the
    answer, and not a message that cannot be decoded."""
    if not isinstance(message, GenerateRequest):
        return ENCODE((message, {}))
    given = {name: float(value) if is_float(name) else value for name, value in message.sampling.given.items()}
    return ENCODE((msgspec.structs.replace(message, sampling=SamplingOptions()), given))


def is_float(option: str) -> bool:
    return SAMPLING_FIELDS[option].kind is float


def unpacked(content: bytes) -> AnyRequest:
    message, given = MESSAGES.decode(content)
    return msgspec.structs.replace(message, sampling=SamplingOptions(**given)) if given else message


class Inbox:
    """The parent's messages, in order."""

    def __init__(self, pipe: Connection, sent: Number) -> None:
        self._pipe, self._sent = pipe, sent
        self._taken = 0

    def arrived(self) -> Iterator[AnyRequest]:
        """Yields those that are there, or on their way."""
        while self._taken < self._sent.value:
            yield self.next()

    def next(self) -> AnyRequest:
        """Waits for one."""
        message = unpacked(self._pipe.recv_bytes())
        self._taken += 1
        return message


class Desk:
    """What is asked, and answered: as many at once as there are slots, and the others in their order. SpecOptions hold
    from the next round on."""

    def __init__(self, inbox: Inbox, pipe: Connection, slots: Slots, stopped: Numbers) -> None:
        self._inbox, self._pipe, self._slots, self._stopped = inbox, pipe, slots, stopped
        self._waiting: deque[GenerateRequest | ChangeDrafter] = deque()
        self._begun = 0

    def work(self) -> None:
        """Answers until the pipe closes; requests are taken between two forwards."""
        while True:
            if not self._waiting and not self._slots.answering:
                self._take(self._inbox.next())
            self._take(*self._inbox.arrived())
            while self._waiting and self._begin(self._waiting[0]):
                self._waiting.popleft()
            self._slots.step()

    def _take(self, *messages: AnyRequest) -> None:
        for message in messages:
            if isinstance(message, SpecOptions):
                tell(self._pipe, Steered(self._slots.steer(message)))
            else:
                self._waiting.append(message)

    def _begin(self, asked: GenerateRequest | ChangeDrafter) -> bool:
        """Whether its time has come: a request's with a free slot, a drafter's when nothing is answered."""
        if isinstance(asked, ChangeDrafter):
            if self._slots.answering:
                return False
            for event in self._slots.change_drafter(asked):
                tell(self._pipe, event)
            return True
        if not self._slots.has_free:
            return False
        number, self._begun = self._begun, self._begun + 1
        self._slots.start(asked, partial(self._report, number), partial(self._is_stopped, number))
        return True

    def _is_stopped(self, number: int) -> bool:
        return self._stopped[number % MOST_OPEN] == number

    def _report(self, number: int, event: AnyEvent) -> None:
        tell(self._pipe, event, number)
        self._take(*self._inbox.arrived())


def child(
    pipe: Connection,
    shared: tuple[Numbers, Number],
    request: LoadRequest,
    opener: str,
    log: str,
) -> None:
    """The child's life: load, then answer until the pipe closes."""
    quieten(log)
    stopped, sent = shared
    try:
        slots = drain(pkgutil.resolve_name(opener)(request), partial(tell, pipe))
        Desk(Inbox(pipe, sent), pipe, slots, stopped).work()
    except (EOFError, OSError):
        pass  # the parent is gone
    except Exception as fault:
        tell(pipe, failure(fault))


class CleanLog(io.TextIOWrapper):
    """A log file without control characters. What a full disk does not take is not logged."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(clean(text))
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


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


def tell(pipe: Connection, event: AnyEvent, number: int | None = None) -> None:
    pipe.send_bytes(ENCODE((number, event)))
