"""Refuses a prompt that is longer than the context before any weight is read, in the words of a loaded model.

Reads headers and the tokenizer; imports no torch. Knows no session.
"""

from __future__ import annotations

from contextlib import closing

from msgspec.structs import replace

from localspec.core.errors import ContextOverflow
from localspec.core.requests import GenerateRequest, LoadRequest
from localspec.engine.generic_arch import read_any
from localspec.loading.plan_request import choose_context
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import open_snapshot
from localspec.models.prompt_sandbox import SandboxedPrompter
from localspec.models.spelling import folding_of
from localspec.runtime.truncation import remedies, turns_over

SHORT = 1000  # bytes: fewer fit into the context of any model that is not a toy, which refuses them once it is loaded


def check_prompt(load: LoadRequest, request: GenerateRequest) -> None:
    """ContextOverflow for what the loaded model would refuse."""
    size = num_bytes(request)
    if size < SHORT:
        return
    entry = Catalog.load().resolve(load.model)
    snapshot = open_snapshot(entry.path, entry.name)
    longest = read_any(snapshot.config).max_context
    context = choose_context(entry.name, longest, load.weights.ctx)
    if size < context:  # a token is a byte or more
        return
    folding = folding_of(entry) if load.folding else None
    with closing(SandboxedPrompter.open(snapshot)) as own:
        if request.template is None and not own.can_chat:
            request = as_text(request)
        prompter, messages = own.using(request.template), request.messages
        if messages is not None and folding is not None:
            messages = folding.messages(messages)  # counted as it is read
        ids = prompter.text(request.prompt or "") if messages is None else prompter.chat(messages)
        if len(ids) >= context:
            turns = turns_over(messages or (), context, lambda some: len(prompter.chat(some)))
            raise ContextOverflow.of(len(ids), context, turns_over=turns, hint=remedies(turns, len(ids), longest))


def num_bytes(request: GenerateRequest) -> int:
    texts = [request.prompt or "", *(message.content for message in request.messages or ())]
    return sum(len(text.encode()) for text in texts)


def as_text(request: GenerateRequest) -> GenerateRequest:
    """The messages as one text, for a model without a chat template."""
    text = "\n\n".join(message.content for message in request.messages or ())
    return replace(request, messages=None, prompt=text)
