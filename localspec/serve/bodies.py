"""The JSON bodies that clients send, checked by type: chat completions and completions. Knows no engine.

A field that would change the answer and that localspec does not have is refused by its name; others are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar  # Any: fields that are only refused

import msgspec

from localspec.core.errors import UsageError
from localspec.core.events import DraftLength, Mode
from localspec.core.requests import (
    MOST_LIKELIEST,
    SAMPLING_FIELDS,
    GenerateRequest,
    Message,
    Role,
    SamplingOptions,
    SpecOptions,
    draft_length,
)
from localspec.serve.faults import RequestRefused, unsupported

MOST_MESSAGES, MOST_STOPS, LONGEST_STOP = 4096, 16, 1000
Stop = Annotated[str, msgspec.Meta(max_length=LONGEST_STOP)]
Stops = Annotated[list[Stop], msgspec.Meta(max_length=MOST_STOPS)]
ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
FIELD = re.compile(r"(?P<fault>.*?)(?: - at `\$\.?(?P<field>.*)`)?", re.DOTALL)
MISSING = re.compile(r"Object missing required field `(?P<name>\w+)`")
NO_TOOLS = "models do not call tools here."
Likeliest = Annotated[int, msgspec.Meta(ge=0, le=MOST_LIKELIEST)]
Test = Callable[[Any], bool]


class Wire(msgspec.Struct, frozen=True):
    """A part of a body; unknown fields are ignored."""


class StreamOptions(Wire, frozen=True):
    include_usage: bool | None = None


class SpecFields(Wire, frozen=True):
    """How to speculate for this answer; `tokens`: say who wrote each token."""

    spec: Mode | None = None
    k: DraftLength | None = None
    tokens: bool = False


class ContentPart(Wire, frozen=True):
    """A part of a message's content."""

    type: str
    text: str | None = None


class ChatMessage(Wire, frozen=True):
    role: str
    content: str | list[ContentPart] | None = None
    tool_calls: Any = None
    function_call: Any = None


if TYPE_CHECKING:
    SamplingBody = Wire
else:  # ranges are checked later, for a message that says them
    SamplingBody = msgspec.defstruct(
        "SamplingBody",
        [(name, field.kind | None, None) for name, field in SAMPLING_FIELDS.items()],
        bases=(Wire,),
        frozen=True,
    )


class RequestBody(SamplingBody, frozen=True, kw_only=True):
    """What both kinds of request have."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: Stop | Stops | None = None
    max_tokens: int | None = None
    timings_per_token: bool | None = None
    localspec: SpecFields | None = None
    # only refused, where they ask for something
    n: int | None = None
    logit_bias: Any = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None


class ChatBody(RequestBody, frozen=True, kw_only=True):
    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=MOST_MESSAGES)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Likeliest | None = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    modalities: Any = None
    audio: Any = None
    web_search_options: Any = None


class CompletionBody(RequestBody, frozen=True, kw_only=True):
    prompt: str | list[Any]
    logprobs: Likeliest | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


class SpeculationBody(msgspec.Struct, frozen=True):
    """How a request asks to speculate; None: as the server does."""

    mode: Mode | None = None
    k: DraftLength | None = None

    def over(self, usual: SpecOptions) -> SpecOptions | None:
        """The server's usual way with what the request says of it; None where it says nothing."""
        if self == SpeculationBody():
            return None
        if self.mode == "off":
            return SpecOptions("off")
        if self.k is not None:
            return SpecOptions.of(self.k, self.mode or "auto")
        k = usual.k or "auto"  # its 0 only says that it is off
        return usual if self.mode is None else SpecOptions(self.mode, k)


class CompletionRequest(msgspec.Struct, frozen=True):
    """A request that can be answered. `model` as it was named; `limit_field`: the field that has its max_tokens."""

    request: GenerateRequest
    model: str | None
    stream: bool = False
    include_usage: bool = False
    timings_per_token: bool = False
    tokens: bool = False
    speculation: SpeculationBody = SpeculationBody()
    limit_field: str = "max_tokens"


def one(count: int | None) -> bool:
    return count in (None, 1)


def nothing(value: Any) -> bool:
    return not value


NEVER_MIND: dict[str, tuple[Test, str]] = {  # what each of these may be, and why it may be nothing else
    "n": (one, "a request gets one answer; send it again for another."),
    "best_of": (one, "a request gets one answer; send it again for another."),
    "logit_bias": (nothing, "use repetition_penalty, or a stop text."),
    "frequency_penalty": (nothing, "use repetition_penalty."),
    "presence_penalty": (nothing, "use repetition_penalty."),
    "tools": (nothing, NO_TOOLS),
    "tool_choice": (lambda value: value in (None, "none", "auto"), NO_TOOLS),
    "functions": (nothing, NO_TOOLS),
    "function_call": (lambda value: value in (None, "none", "auto"), NO_TOOLS),
    "response_format": (lambda value: value in (None, {"type": "text"}), "an answer is plain text."),
    "modalities": (lambda value: value in (None, [], ["text"]), "an answer is plain text."),
    "audio": (nothing, "an answer is plain text."),
    "web_search_options": (lambda value: value is None, "the server does not use the network."),
    "echo": (nothing, "the prompt is not repeated."),
    "suffix": (nothing, "text is continued, not filled in."),
}

B = TypeVar("B", bound=RequestBody)
CHAT, COMPLETION = msgspec.json.Decoder(ChatBody), msgspec.json.Decoder(CompletionBody)


def chat_request(content: bytes) -> CompletionRequest:
    """The request in the body of a chat completion; RequestRefused names the field that is wrong."""
    body = decoded(CHAT, content)
    messages = tuple(read_message(message, index) for index, message in enumerate(body.messages))
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    named = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    continues = messages[-1].role == "assistant" and bool(messages[-1].content)
    if body.top_logprobs is not None and not body.logprobs:
        message = "'top_logprobs' needs 'logprobs': true."
        raise RequestRefused(400, message, parameter="top_logprobs", code="out_of_range")
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    request = GenerateRequest(
        messages=messages, max_tokens=checked_limit(named, limit), continues=continues, logprobs=logprobs
    )
    return msgspec.structs.replace(asked(body, request), limit_field=named)


def completion_request(content: bytes) -> CompletionRequest:
    """The request in the body of a completion."""
    body = decoded(COMPLETION, content)
    limit = checked_limit("max_tokens", body.max_tokens)
    return asked(body, GenerateRequest(prompt=one_prompt(body.prompt), max_tokens=limit, logprobs=body.logprobs))


def decoded(decoder: msgspec.json.Decoder[B], content: bytes) -> B:
    try:
        body = decoder.decode(content)
    except msgspec.ValidationError as fault:
        raise wrong(str(fault)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        reason = "it is nested too deeply" if isinstance(fault, RecursionError) else str(fault)[:200]
        raise RequestRefused(400, f"The body is not JSON: {reason}.", code="not_json") from None
    for name, (is_harmless, reason) in NEVER_MIND.items():
        if not is_harmless(getattr(body, name, None)):
            raise unsupported(name, reason)
    return body


def wrong(fault: str) -> RequestRefused:
    """msgspec's words as a refusal that names the field."""
    found = FIELD.fullmatch(fault)
    field = found["field"] if found else None
    what = found["fault"] if found else fault
    if missing := MISSING.fullmatch(what):
        field = ".".join(filter(None, (field, missing["name"])))
        return RequestRefused(400, f"'{field}' is missing.", parameter=field, code="missing")
    message = f"'{field}': {what}." if field else f"{what}."
    return RequestRefused(400, message[:500], parameter=field or None, code="wrong_type")


def asked(body: RequestBody, request: GenerateRequest) -> CompletionRequest:
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    request = msgspec.structs.replace(request, stop=tuple(filter(None, stops)), sampling=sampling_of(body))
    spec = body.localspec or SpecFields()
    return CompletionRequest(
        request,
        model=body.model,
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        timings_per_token=bool(body.timings_per_token),
        tokens=spec.tokens,
        speculation=speculation_of(spec),
    )


def sampling_of(body: RequestBody) -> SamplingOptions:
    given = {name: value for name in SAMPLING_FIELDS if (value := getattr(body, name)) is not None}
    for name, value in given.items():
        if not SAMPLING_FIELDS[name].takes(value):
            message = f"'{name}' must be {SAMPLING_FIELDS[name].range}."
            raise RequestRefused(400, message, parameter=name, code="out_of_range")
    return SamplingOptions(**given)


def speculation_of(spec: SpecFields) -> SpeculationBody:
    try:
        return SpeculationBody(spec.spec, None if spec.k is None else draft_length(spec.k))
    except UsageError:
        reason = "'localspec.k' must be auto, heuristic, or a whole number from 0 to 16."
        raise RequestRefused(400, reason, parameter="localspec.k", code="out_of_range") from None


def checked_limit(name: str, limit: int | None) -> int | None:
    if limit is not None and limit < 1:
        raise RequestRefused(400, f"'{name}' must be 1 or more.", parameter=name, code="out_of_range")
    return limit


def one_prompt(prompt: str | list[Any]) -> str:
    match prompt:
        case str() | [str()]:
            text: str = prompt if isinstance(prompt, str) else prompt[0]
            if text:
                return text
            raise RequestRefused(
                400, "'prompt' is empty; give some text to continue.", parameter="prompt", code="empty"
            )
        case [str(), *_]:
            raise unsupported("prompt", "one prompt at a time.")
    raise unsupported("prompt", "it is text, not token ids.")


def read_message(message: ChatMessage, index: int) -> Message:
    where = f"messages[{index}]"
    if message.role not in ROLES:
        known = ", ".join(ROLES)
        raise RequestRefused(
            400,
            f"'{where}.role' must be one of {known}; {NO_TOOLS}",
            parameter=f"{where}.role",
            code="unsupported",
        )
    for name in ("tool_calls", "function_call"):
        if getattr(message, name):
            raise unsupported(f"{where}.{name}", NO_TOOLS)
    return Message(ROLES[message.role], content_of(message, where))


def content_of(message: ChatMessage, where: str) -> str:
    match message.content:
        case str(text):
            return text
        case None:
            raise RequestRefused(400, f"'{where}.content' is missing.", parameter=f"{where}.content", code="missing")
        case parts:
            return "".join(text_of(part, f"{where}.content[{index}]") for index, part in enumerate(parts))


def text_of(part: ContentPart, where: str) -> str:
    if part.type != "text":
        raise unsupported(f"{where}.type", "a message's parts are text.")
    if part.text is None:
        raise RequestRefused(400, f"'{where}.text' is missing.", parameter=f"{where}.text", code="missing")
    return part.text
