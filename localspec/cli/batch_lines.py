"""The requests of `localspec run --batch`: a JSON object a line, of a file or piped in. Knows no model."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any  # Any: JSON

import msgspec
from msgspec.structs import replace

from localspec.cli.io import STREAM, read_piped
from localspec.core.errors import UsageError
from localspec.core.plain_file import plain
from localspec.core.requests import SAMPLING_FIELDS, GenerateRequest, Message, SamplingOptions

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


DECODE = msgspec.json.Decoder(Line).decode


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
    """The requests of a file, or of what is piped in for `-`; empty lines are left out. UsageError names the first line
    that is wrong."""
    name = named(file)
    found: list[Asked] = []
    for number, content in enumerate(content_of(file).split(b"\n"), 1):
        if content.strip():
            try:
                line = DECODE(content)
                reason = line.fault
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
                reason = str(fault).replace("`", "'")
            if reason:
                raise UsageError(f"Line {number} of {name} is wrong: {reason}.", hint=SUCH)
            found.append(Asked(len(found), line))
    if not found:
        raise UsageError(f"{name[0].upper()}{name[1:]} has no requests.", hint=SUCH)
    return found


def named(file: Path) -> str:
    return "the piped input" if file == STREAM else f"'{file}'"


def content_of(file: Path) -> bytes:
    if file == STREAM:
        if sys.stdin.isatty():
            raise UsageError("Nothing is piped in.", hint="Try: localspec run MODEL --batch - < FILE.jsonl")
        return read_piped(hint="Name a file of JSON lines: --batch FILE")
    try:
        return plain(file).read_bytes()
    except OSError as fault:
        raise UsageError(f"'{file}' cannot be read ({fault.strerror}).", hint="Name a file of JSON lines.") from fault
