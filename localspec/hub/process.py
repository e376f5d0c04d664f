"""The hub's child process, seen from the parent: questions as lines of JSON, answers as events, under deadlines.

The child alone imports huggingface_hub and touches the network; it is killed when it is silent. The parent needs
neither, and a chat that never asks never starts one.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Lock

import msgspec

from localspec.core.errors import HubAway, PullError, error_of
from localspec.core.events import Failure
from localspec.hub.records import LAST, PAUSES, AnyAsk, HubAnswer

ANSWERS = msgspec.json.Decoder(HubAnswer)
ANSWER_SECONDS = 30.0  # from a question to its first answer, and between answers; the child has shorter ones of its own
CHILD = "localspec.hub.child"


class HubProcess:
    """The parent's end. One question at a time; `close` may be called from any thread, and ends what is under way."""

    def __init__(self, *, silence: float = ANSWER_SECONDS) -> None:
        self._silence = silence
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._read: subprocess.Popen[bytes] | None = None

    def ask(self, question: AnyAsk) -> Iterator[HubAnswer]:
        """The answers to a question, up to the last, or to a plan that waits for Go; a Failure is raised as the error
        that it stands for, HubAway where no answer comes in time."""
        child = self._started()
        assert child.stdin is not None
        with suppress(BrokenPipeError):
            child.stdin.write(msgspec.json.encode(question) + b"\n")
            child.stdin.flush()
        with closing(self._lines(child)) as lines:
            for answer in map(ANSWERS.decode, lines):
                if isinstance(answer, Failure):
                    self._end(child)  # a silent hub may still hold its threads, and they their locks
                    raise error_of(answer.code, answer.message, hint=answer.hint)
                yield answer
                if isinstance(answer, LAST + PAUSES):
                    return

    def close(self) -> None:
        """End the child; what it has downloaded stays."""
        with self._lock:
            child = self._child
        if child is not None:
            self._end(child)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """End this child, whichever is asked by now."""
        with self._lock:
            if child is self._child:
                self._child = None
        child.kill()
        child.wait()
        with self._lock:
            unread = [] if child is self._read else [child.stdout]
        for stream in (child.stdin, *unread):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def __enter__(self) -> HubProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._child is None or self._child.poll() is not None:
                self._child = subprocess.Popen(
                    [sys.executable, "-m", CHILD, str(self._silence)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
                    start_new_session=True,  # Ctrl+C in the terminal is the parent's to answer
                )
            return self._child

    def _lines(self, child: subprocess.Popen[bytes]) -> Generator[bytes, None, None]:
        """The child's lines until it ends; HubAway when none comes for `silence` seconds, PullError when it
        ended unasked."""
        assert child.stdout is not None
        kept = b""
        with self._reading(child), selectors.DefaultSelector() as ready:
            ready.register(child.stdout, selectors.EVENT_READ)
            while ready.select(self._silence):
                read = os.read(child.stdout.fileno(), 1 << 16)
                if not read:
                    raise PullError("The download's process ended.", hint="Repeat the command: progress is kept.")
                *lines, kept = (kept + read).split(b"\n")
                yield from lines
            self._end(child)
        raise HubAway(f"The hub stopped answering ({self._silence:g} s).", hint="Repeat the command to go on.")

    @contextmanager
    def _reading(self, child: subprocess.Popen[bytes]) -> Iterator[None]:
        """Its answers stay open as long as they are read, though it is ended meanwhile: a selector is not woken by a
        descriptor that another thread closes."""
        assert child.stdout is not None
        with self._lock:
            self._read = child
        try:
            yield
        finally:
            with self._lock:
                self._read = None if self._read is child else self._read
                is_ended = child is not self._child
            if is_ended:
                child.stdout.close()
