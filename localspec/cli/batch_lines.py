"""The requests of `localspec run --batch`: one JSON object per line, from a file or a pipe. Knows no model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, get_type_hints  # Any: JSON

import msgspec
from msgspec.structs import FieldInfo, replace

from localspec.cli.io import STREAM, read_piped
from localspec.core.errors import UsageError
from localspec.core.plain_file import plain
from localspec.core.requests import (
    MOST_TOKENS,
    SAMPLING_FIELDS,
    GenerateRequest,
    LoadRequest,
    Message,
    SamplingOptions,
    WeightOptions,
)

ResultLine = dict[str, Any]
LONG_ENOUGH = 16  # letters of a hash
SUCH = 'A line is e.g. {"id": "a", "prompt": "Hello"}, or has "messages".'


class Line(SamplingOptions, frozen=True, forbid_unknown_fields=True):
    """A line of the file: one of `prompt` and `messages`, and what else is to hold for it alone."""

    id: str | int | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], msgspec.Meta(min_length=1)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)] | None = None
    stop: str | list[str] = ()  # type: ignore[assignment]  # msgspec allows an empty default

    @property
    def sampling(self) -> SamplingOptions:
        return SamplingOptions(**{name: getattr(self, name) for name in SAMPLING_FIELDS})


TYPES = get_type_hints(Line, include_extras=True)
WORDS = {
    "id": "a text or a whole number",
    "prompt": "a text",
    "messages": 'a list of at least one {"role": "user", "content": "…"}; a role is system, user or assistant',
    "max_tokens": f"a whole number from 1 to {MOST_TOKENS:,}",
    "stop": "a text or a list of texts",
    **{name: field.range for name, field in SAMPLING_FIELDS.items()},
}


def read_line(content: bytes) -> Line:
    """Reads a request; ValueError says what is wrong."""
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError('it is JSON, but not an object such as {"prompt": …}')
    if unknown := next((name for name in found if name not in TYPES), None):
        raise ValueError(f"there is no field '{unknown[:100]}', only {', '.join(WORDS)}")
    line = Line(**{name: read_field(name, value) for name, value in found.items()})
    if (line.prompt is None) == (line.messages is None):
        raise ValueError(
            "it has neither a prompt nor messages" if line.prompt is None else "it has both a prompt and messages"
        )
    if line.messages is None and not (line.prompt or "").strip():
        raise ValueError("its prompt is empty")
    return line


def read_field(name: str, value: Any) -> Any:
    try:
        return msgspec.convert(value, TYPES[name])
    except msgspec.ValidationError:
        raise ValueError(f"'{name}' is not {WORDS[name]}") from None


@dataclass(frozen=True, slots=True)
class BatchDefaults:
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
class BatchRequest:
    """One of the file's requests, `index` from 0; `digest` is of all that decides its text."""

    index: int
    id: str | int | None
    request: GenerateRequest
    digest: str

    def record(self, **more: Any) -> ResultLine:
        named = {} if self.id is None else {"id": self.id}
        return {"index": self.index, **named, "asked": self.digest, **more}


def ask(lines: Sequence[Line], asking: BatchDefaults, load: LoadRequest, usual: SamplingOptions) -> list[BatchRequest]:
    """The requests of lines; `usual`: sampling options for a model that names none."""
    requests = map(asking.request, lines)
    held = load.weights
    weights = WeightOptions(held.weight_format, keep_head=held.keep_head, int8_threshold=held.int8_threshold)
    model = LoadRequest(load.model, weights=weights, folding=load.folding)
    return [
        BatchRequest(index, line.id, request, digest(request, model, usual))
        for index, (line, request) in enumerate(zip(lines, requests, strict=True))
    ]


def digest(request: GenerateRequest, model: LoadRequest, usual: SamplingOptions) -> str:
    """A word for a request; references are left out: they decide who drafts a text, and not the text."""
    written = msgspec.json.encode(given((replace(request, references=()), model, usual)), order="deterministic")
    return sha256(written).hexdigest()[:LONG_ENOUGH]


def given(value: Any) -> Any:
    """A record as its fields that differ from their defaults: one that a later version adds changes no digest."""
    match value:
        case msgspec.Struct():
            fields = [(field, getattr(value, field.name)) for field in msgspec.structs.fields(value)]
            return {field.name: given(found) for field, found in fields if found != default(field)}
        case tuple():
            return [given(one) for one in value]
    return value


def default(field: FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def read_batch(file: Path) -> list[Line]:
    """The requests of a file, or of what is piped in for `-`; empty lines are left out. UsageError names the first line
    that is wrong."""
    name = named(file)
    found: list[Line] = []
    for number, content in enumerate(content_of(file).split(b"\n"), 1):
        if content.strip():
            try:
                found.append(read_line(content))
            except ValueError as fault:
                raise UsageError(f"Line {number} of {name}: {fault}.", hint=SUCH) from fault
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
