"""Runs a model's tokenizer and chat template in a process with limits of memory and time.

They are untrusted programs: a hundred bytes can fill a computer's memory or run for ever. The process is also ended
when the answer is cancelled; the next job starts another. Knows no
weights.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from localspec.core.errors import CHOOSE_ANOTHER, REPEAT, Cancelled, CheckpointError, LocalspecError
from localspec.core.limits import Part, entered
from localspec.core.sizes import size_words
from localspec.models.sandbox_jobs import (
    CheckTemplate,
    ComparePair,
    EncodeAnswer,
    EncodeChat,
    EncodePart,
    EncodeText,
    Ids,
    Job,
    JobAnswer,
    JobDone,
    OpenPrompter,
    Order,
    PrompterOpened,
    Refused,
    TokenizerText,
    Verdict,
    receive,
    send,
)

SECONDS = 4.0  # of the processor, for a job: real ones take milliseconds
SECONDS_A_BYTE = 10e-6  # of text; a fast tokenizer takes one
NUM_BYTES = 256 << 20
NUM_BYTES_A_BYTE = 200  # of text; a token's id, name and offsets take about 60
PARSED = 0.05  # a byte of tokenizer.json is parsed, not encoded
GLANCE = 0.05  # seconds between checks whether the job is cancelled
CODE = "import sys; from localspec.models.sandbox_process import main; main(int(sys.argv[1]))"
ANSWERS = msgspec.msgpack.Decoder(JobAnswer)
ENCODE = msgspec.msgpack.Encoder().encode
ERRORS = {kind.code: kind for kind in LocalspecError.__subclasses__()}
POSIX = os.name == "posix"  # elsewhere there are no limits, and a cancelled job runs to its end
T = TypeVar("T", PrompterOpened, Ids, Verdict, JobDone)


class Sandbox:
    """Runs one job at a time, from any thread, in a process that is started when needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: SandboxProcess | None = None
        self._model: OpenPrompter | None = None

    def ask(self, job: Job, kind: type[T], cancelled: Callable[[], bool] | None = None) -> T:
        """Runs a job and returns its answer. LocalspecError where it fails, Cancelled where it was cancelled."""
        with self._lock:
            if self._process is None or not self._process.lives:
                self._end()
                self._process = SandboxProcess()
                if self._model is not None:
                    self._get(self._process, self._model, PrompterOpened, cancelled)
            found = self._get(self._process, job, kind, cancelled)
            self._model = job if isinstance(job, OpenPrompter) else self._model
            return found

    def close(self) -> None:
        """Ends the process; may be called twice."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _get(self, process: SandboxProcess, job: Job, kind: type[T], cancelled: Callable[[], bool] | None) -> T:
        order = self._order(job)
        try:
            answer = process.do(order, cancelled)
        except BaseException:  # its late answer must not be taken for the next one
            self._end()
            raise
        if isinstance(answer, Refused):
            raise ERRORS[answer.code](answer.message, hint=answer.hint)
        if not isinstance(answer, kind):
            fault = self._fault(order, process.part, too_long=process.took_too_long)
            self._end()
            raise fault
        return answer

    def _order(self, job: Job) -> Order:
        """The job with limits for a text of its length."""
        size = num_chars(job) + PARSED * sum(len(tokenizer.text) for tokenizer in tokenizers(job, self._model))
        return Order(job, SECONDS + SECONDS_A_BYTE * size, NUM_BYTES + int(NUM_BYTES_A_BYTE * size))

    def _fault(self, order: Order, part: Part, *, too_long: bool) -> CheckpointError:
        """The error that names the file which exceeded the limits."""
        job, model = order.job, order.job if isinstance(order.job, OpenPrompter) else self._model
        name = job.name if isinstance(job, CheckTemplate) else model.name if model else ""
        over = f"{order.seconds:.0f} seconds" if too_long else f"{size_words(order.num_bytes)} of memory"
        if part == "template":
            message = f"The chat template of '{name}' needs more than {over}."
            return CheckpointError(message, hint=CHOOSE_ANOTHER)
        where = " or ".join(tokenizer.where for tokenizer in tokenizers(job, self._model))
        return CheckpointError(f"{where} is not a working tokenizer (it needs more than {over}).", hint=REPEAT)


class SandboxProcess:
    """The sandbox's process. `end` ends it, as does dropping the last reference."""

    def __init__(self) -> None:
        note = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by `end`
        self._note = note.fileno()
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-c", CODE, str(self._note if POSIX else -1)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": search_path(), "TOKENIZERS_PARALLELISM": "false"},
            pass_fds=(self._note,) if POSIX else (),
        )
        self.end = weakref.finalize(self, end, self._popen, note)

    @property
    def lives(self) -> bool:
        return self._popen.poll() is None

    def do(self, order: Order, cancelled: Callable[[], bool] | None) -> JobAnswer | None:
        """Sends an order and returns the answer; None where the process ended."""
        orders, answers = self._popen.stdin, self._popen.stdout
        assert orders is not None
        assert answers is not None
        try:
            send(orders, ENCODE(order))
            while POSIX and cancelled and not select.select([answers], [], [], GLANCE)[0]:
                if cancelled():
                    raise Cancelled("Encoding the prompt was cancelled.")
            raw = receive(answers)
        except OSError:
            raw = b""
        return ANSWERS.decode(raw) if raw else None

    @property
    def took_too_long(self) -> bool:
        """True if it exceeded its time, False if its memory."""
        with suppress(subprocess.TimeoutExpired):  # one that ran out of memory in Python lives on
            self._popen.wait(GLANCE)
        return POSIX and self._popen.returncode == -signal.SIGPROF

    @property
    def part(self) -> Part:
        """The part of the model's folder that ran last."""
        return entered(self._note) if POSIX else "tokenizer"


def check_template(source: str, name: str) -> None:
    """CheckpointError where a template does not compile."""
    sandbox = Sandbox()
    try:
        sandbox.ask(CheckTemplate(source, name), JobDone)
    finally:
        sandbox.close()


def compare_tokenizers(target: TokenizerText, drafter: TokenizerText) -> Verdict:
    """Decides whether one model may draft for the other; CheckpointError where a tokenizer does not work."""
    sandbox = Sandbox()
    try:
        return sandbox.ask(ComparePair(target, drafter), Verdict)
    finally:
        sandbox.close()


def end(popen: subprocess.Popen[bytes], note: IO[bytes]) -> None:
    popen.kill()
    popen.wait()
    for stream in (popen.stdin, popen.stdout, note):
        with suppress(OSError):  # an order that was not sent completely
            assert stream is not None
            stream.close()


def search_path() -> str:
    """The module path of this process without the current folder: a model's folder might have modules."""
    own = str(Path(__file__).parents[2])
    return os.pathsep.join([*(path for path in sys.path if path), own])


def tokenizers(job: Job, model: OpenPrompter | None) -> tuple[TokenizerText, ...]:
    """The tokenizers that a job runs; `model` is open for it."""
    match job:
        case ComparePair():
            return job.target, job.drafter
        case OpenPrompter():
            return (job.tokenizer,)
    return (model.tokenizer,) if model else ()


def num_chars(job: Job) -> int:
    """The number of characters to encode."""
    match job:
        case EncodeChat():
            return sum(len(message.content) for message in job.messages)
        case EncodeAnswer():
            return sum(len(message.content) for message in job.before) + len(job.text)
        case EncodePart() | EncodeText():
            return len(job.text)
    return 0
