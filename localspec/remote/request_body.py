"""A question in a server's own words: the body of the request. Knows no sockets."""

from __future__ import annotations

from typing import Any  # Any: JSON

import msgspec

from localspec.core.errors import UsageError
from localspec.core.requests import RANDOM_SEED, GenerateRequest, SpecOptions
from localspec.remote.kinds import Kind

Spec = tuple[SpecOptions | None, SpecOptions]  # as the user wants it, if asked, and as the server does of itself
OPENAI = ("temperature", "top_p", "seed")
OLLAMA = {"repetition_penalty": "repeat_penalty"}  # its other names of sampling options are ours


def body(kind: Kind, model: str, request: GenerateRequest, spec: Spec) -> bytes:
    """The request's body; UsageError for what this server cannot do."""
    if request.continues and kind.continues is None:
        raise UsageError(
            f"{kind.title} cannot continue an answer that was cut.", hint="Ask it to continue in your next message."
        )
    if request.template is not None:
        raise UsageError("The server formats the chat itself.", hint="/template none")
    made = ollama(model, request, spec) if kind.lines else openai(kind, model, request, spec)
    return msgspec.json.encode(made)


def messages(request: GenerateRequest) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in request.messages or ()]


def given(request: GenerateRequest) -> dict[str, int | float]:
    """The sampling options that were asked for; a random seed is the server's own."""
    return {name: value for name, value in request.sampling.given.items() if (name, value) != ("seed", RANDOM_SEED)}


def openai(kind: Kind, model: str, request: GenerateRequest, spec: Spec) -> dict[str, Any]:
    options = given(request)
    made: dict[str, Any] = {
        "model": model,
        "messages": messages(request),
        "stream": True,
        "stream_options": {"include_usage": True},
        **{name: options[name] for name in OPENAI if name in options},
        **{theirs: options[ours] for ours, theirs in kind.extras.items() if ours in options},
        **kind.figures,
    }
    if request.max_tokens is not None:
        made["max_tokens"] = request.max_tokens
    if request.stop:
        made["stop"] = list(request.stop)
    if request.continues and kind.continues:
        made |= kind.continues
    if kind.switches:
        made["localspec"] = {**made.get("localspec", {}), **localspec_options(request, *spec)}
    return made


def localspec_options(request: GenerateRequest, options: SpecOptions | None, own: SpecOptions) -> dict[str, Any]:
    """How another localspec is to speculate for this answer, as far as that is not its own way."""
    if is_off(request, options):
        return {"spec": "off"}
    asked = options or own
    if asked.mode == "off" and request.speculate:
        asked = SpecOptions("auto", asked.k)
    changed = {"spec": (asked.mode, own.mode), "k": (asked.k, own.k)}
    return {name: value for name, (value, usual) in changed.items() if value != usual}


def ollama(model: str, request: GenerateRequest, spec: Spec) -> dict[str, Any]:
    options: dict[str, Any] = {OLLAMA.get(name, name): value for name, value in given(request).items()}
    if request.max_tokens is not None:
        options["num_predict"] = request.max_tokens
    if request.stop:
        options["stop"] = list(request.stop)
    if is_off(request, spec[0]):
        options["draft_num_predict"] = 0
    return {"model": model, "messages": messages(request), "stream": True, "options": options}


def is_off(request: GenerateRequest, options: SpecOptions | None) -> bool:
    """Whether speculation is to be off for this answer: a comparison decides for itself."""
    if request.speculate is not None:
        return not request.speculate
    return options is not None and options.mode == "off"
