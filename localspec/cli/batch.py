"""`localspec run --batch`: a JSON object a line in, a JSON line a result out, in the same order.

With an output file each result is there once it is ready, and the same command goes on where it was stopped. Knows the
Python interface and files, no widgets.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Self  # Any: JSON

import msgspec
from msgspec.structs import replace

from localspec.cli.io import as_json, print_note, print_notice
from localspec.cli.progress import Progress
from localspec.cli.run import NO_TEMPLATE, Output, open_quietly, stop_on_interrupt, with_defaults
from localspec.core.errors import Cancelled, LocalspecError, UsageError
from localspec.core.events import Loading
from localspec.core.locks import Lock, lock
from localspec.core.plain_file import plain
from localspec.core.requests import SAMPLING_FIELDS, GenerateRequest, LoadRequest, Message, SamplingOptions
from localspec.core.whole_file import cannot_be_written, create, write_whole
from localspec.runtime.api import LLM, Gathered
from localspec.runtime.long_prompt import as_text

Record = dict[str, Any]
SUCH = 'A line is e.g. {"id": "a", "prompt": "Hello"}, or has "messages".'


class Line(SamplingOptions, frozen=True, forbid_unknown_fields=True):
    """A line of the file: one of `prompt` and `messages`, and what else is to hold for it alone."""

    id: str | int | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], msgspec.Meta(min_length=1)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    stop: str | list[str] = ()  # type: ignore[assignment]  # msgspec allows an empty default

    @property
    def sampling(self) -> SamplingOptions:
        return SamplingOptions(**{name: getattr(self, name) for name in SAMPLING_FIELDS})

    @property
    def fault(self) -> str:
        """What is wrong with its text; "" for nothing."""
        if (self.prompt is None) == (self.messages is None):
            return "it needs a prompt or messages, and not both"
        return "its prompt is empty" if self.messages is None and not (self.prompt or "").strip() else ""


class Head(msgspec.Struct):
    """What a result is of, and its error."""

    index: int
    id: str | int | None = None
    error: dict[str, Any] | None = None


DECODE, HEAD = msgspec.json.Decoder(Line).decode, msgspec.json.Decoder(Head).decode


@dataclass(frozen=True, slots=True)
class Asking:
    """What holds for all lines: `common` has all but the text; a prompt is a user's message after `system`, or as it is
    where it is `raw`."""

    common: GenerateRequest
    system: str = ""
    raw: bool = False

    def request(self, line: Line) -> GenerateRequest:
        stops = (line.stop,) if isinstance(line.stop, str) else tuple(line.stop)
        common = replace(
            self.common,
            max_tokens=line.max_tokens or self.common.max_tokens,
            stop=stops or self.common.stop,
            sampling=line.sampling.over(self.common.sampling),
        )
        if line.messages is not None:
            return replace(common, messages=tuple(line.messages))
        if self.raw:
            return replace(common, prompt=line.prompt, template=None)
        system = (Message("system", self.system),) if self.system else ()
        return replace(common, messages=(*system, Message("user", line.prompt or "")))


@dataclass(frozen=True, slots=True)
class Asked:
    """One of the file's requests, `index` from 0."""

    index: int
    line: Line

    def record(self, **more: Any) -> Record:
        named = {} if self.line.id is None else {"id": self.line.id}
        return {"index": self.index, **named, **more}


def read_batch(file: Path) -> list[Asked]:
    """The requests of a file, whose empty lines are left out; UsageError names the first line that is wrong."""
    try:
        lines = plain(file).read_bytes().split(b"\n")
    except OSError as fault:
        raise UsageError(f"'{file}' cannot be read ({fault.strerror}).", hint="Name a file of JSON lines.") from fault
    found: list[Asked] = []
    for number, content in enumerate(lines, 1):
        if content.strip():
            try:
                line = DECODE(content)
                reason = line.fault
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
                reason = str(fault).replace("`", "'")
            if reason:
                raise UsageError(f"Line {number} of '{file}' is wrong: {reason}.", hint=SUCH)
            found.append(Asked(len(found), line))
    if not found:
        raise UsageError(f"'{file}' has no requests.", hint=SUCH)
    return found


# --- where results go


class Printed:
    """Results on stdout, each once all before it are there."""

    failed = 0  # of earlier runs

    def __init__(self) -> None:
        self._waiting: dict[int, Record] = {}
        self._next = 0

    def has(self, _: int) -> bool:
        return False

    def write(self, record: Record) -> None:
        self._waiting[record["index"]] = record
        while self._next in self._waiting:
            print(as_json(self._waiting.pop(self._next)), flush=True)
            self._next += 1

    def close(self) -> None:
        """Prints what is there of those behind one that is not."""
        for _, record in sorted(self._waiting.items()):
            print(as_json(record), flush=True)


class Kept:
    """Results in a file, each once it is ready; when all are there, they are put in order. What the file has is not
    asked for again."""

    def __init__(self, file: Path, held: Lock, heads: list[Head], count: int) -> None:
        self._file, self._held, self._count = file, held, count
        self._indices = [head.index for head in heads]
        self.failed = sum(head.error is not None for head in heads)
        self._stream = file.open("ab")

    @classmethod
    def open(cls, file: Path, asked: Sequence[Asked]) -> Self:
        """Opens the file, or makes it; UsageError where it has results of other requests, or another process writes it.
        Half a line at its end is dropped."""
        with cannot_be_written(file):
            if not file.exists():
                create(file).close()
            held = lock(plain(file))
            if held is None:
                raise UsageError(f"Another localspec writes '{file}'.", hint="Wait for it, or name another FILE.")
            content = file.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            heads = [checked(file, number, line, asked) for number, line in enumerate(whole.splitlines(), 1)]
            os.truncate(file, len(whole))
            return cls(file, held, heads, len(asked))

    def has(self, index: int) -> bool:
        return index in self._indices

    def write(self, record: Record) -> None:
        with cannot_be_written(self._file):
            self._stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            self._stream.flush()
        self._indices.append(record["index"])

    def close(self) -> None:
        """Puts them in order where all are there, and lets others write the file."""
        with closing(self._held):
            self._stream.close()
            self._sort()

    def _sort(self) -> None:
        if len(self._indices) == self._count and self._indices != sorted(self._indices):
            with cannot_be_written(self._file):
                lines = self._file.read_bytes().splitlines(keepends=True)
                ordered = [line for _, line in sorted(zip(self._indices, lines, strict=True))]
                mode = self._file.stat().st_mode
                write_whole(self._file.resolve(), b"".join(ordered))
                self._file.chmod(mode)


def checked(file: Path, number: int, content: bytes, asked: Sequence[Asked]) -> Head:
    """What a result is of; UsageError where it is none of these requests'."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        head = HEAD(content)
        if 0 <= head.index < len(asked) and head.id == asked[head.index].line.id:
            return head
    message = f"'{file}' has results of another batch (line {number})."
    raise UsageError(message, hint="Name another file with --output.")


# --- answering


@dataclass(frozen=True, slots=True)
class Batch:
    """A file's requests, what holds for all, and the file of the results; None for stdout."""

    asked: Sequence[Asked]
    asking: Asking
    file: Path | None


def answer_batch(load: LoadRequest, batch: Batch, output: Output, usual: SamplingOptions) -> int:
    """Answers what the file does not have yet, and returns the exit code: 130 where it was stopped, 1 where some
    failed."""
    asked, file = batch.asked, batch.file
    results = Kept.open(file, asked) if file is not None else Printed()
    left = [one for one in asked if not results.has(one.index)]
    if not left:
        print_note(f"{file} has all {len(asked):,} results already.")
    failed = results.failed
    with ExitStack() as stack:
        stack.callback(results.close)
        if left:
            llm = stack.enter_context(open_quietly(load, output))
            requests = completed(llm, [batch.asking.request(one.line) for one in left], usual)
            stopped = threading.Event()
            stack.enter_context(stop_on_interrupt(stopped.set))
            count = Counting(len(asked) - len(left), len(asked), stack.enter_context(Progress()))
            for number, answer in llm.answer_many(requests, cancelled=stopped.is_set):
                record = record_of(left[number], answer)
                if record.get("finish_reason") != "cancelled":
                    results.write(record)
                    count.one(record.get("tokens", 0))
                    failed += "error" in record
            count.end()
            if stopped.is_set():
                print_note(how_to_go_on(count.done, len(asked), file))
                return Cancelled.exit_code
    if failed:
        print_note(f"{failed} of {len(asked)} failed; their lines have an error.")
    return 1 if failed else 0


def completed(llm: LLM, asked: Sequence[GenerateRequest], usual: SamplingOptions) -> list[GenerateRequest]:
    """The requests with all options; a base model completes the texts, with one notice."""
    requests = [with_defaults(llm, one, usual) for one in asked]
    if llm.ready.model.chat or all(one.messages is None or one.template is not None for one in requests):
        return requests
    print_notice(NO_TEMPLATE)
    return [as_text(one) if one.messages is not None and one.template is None else one for one in requests]


def record_of(one: Asked, answer: Gathered) -> Record:
    """The result as a line has it."""
    try:
        result = answer.result()
    except LocalspecError as fault:
        return one.record(error={"code": fault.code, "message": fault.message})
    tokens = {"tokens": result.stats.predicted_n, "prompt_tokens": result.stats.prompt_n}
    return one.record(text=result.text, finish_reason=result.finish_reason, **tokens)


class Counting:
    """How many are done, shown on a bar, and how fast it goes."""

    def __init__(self, done: int, total: int, bar: Progress) -> None:
        self.done, self._before, self._total, self._bar = done, done, total, bar
        self._tokens, self._started = 0, monotonic()
        self._show(None)

    def one(self, tokens: int) -> None:
        self.done += 1
        self._tokens += tokens
        each = (monotonic() - self._started) / (self.done - self._before)
        self._show(each * (self._total - self.done))

    def end(self) -> None:
        """Wipes the bar and says what was done."""
        self._bar.wipe()
        seconds = max(monotonic() - self._started, 1e-9)
        rate = f"{self._tokens:,} tokens in {seconds:.1f} s ({self._tokens / seconds:.1f} a second)"
        print_note(f"Answered {self.done:,} of {self._total:,}: {rate}.")

    def _show(self, left: float | None) -> None:
        self._bar.show(Loading("answering", self.done, self._total, "answers", left))


def how_to_go_on(done: int, total: int, file: Path | None) -> str:
    if file is None:
        return "Stopped. With --output FILE the same command goes on where it was stopped."
    return f"Stopped; {file} has {done:,} of {total:,}. The same command goes on."
