"""An answer as OpenAI's protocol carries it: chunks of a stream, or one object, made from the engine's events.

Knows no HTTP and no engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from time import time
from typing import Any, Literal  # Any: JSON

import msgspec

from localspec.core.events import AnyEvent, Done, Notice, Ready, SpecCard, Stats, Step, Token
from localspec.runtime.stats import Tally
from localspec.serve.bodies import CompletionRequest
from localspec.serve.figures import own_figures, timings, usage
from localspec.serve.logprobs import chat_logprobs, completion_logprobs

Kind = Literal["chat", "completion"]
FINISHED = {"context": "length"}  # OpenAI has no word for a full context; every other reason is a word of its own
PREFIX: dict[Kind, str] = {"chat": "chatcmpl-", "completion": "cmpl-"}
WHOLE: dict[Kind, str] = {"chat": "chat.completion", "completion": "text_completion"}
CHUNK: dict[Kind, str] = {"chat": "chat.completion.chunk", "completion": "text_completion"}


@dataclass(slots=True)
class ReplyWriter:
    """One answer under way: takes its events, gives what a client is sent."""

    kind: Kind
    asked: CompletionRequest
    ready: Ready
    spec: SpecCard
    model: str
    id: str = ""
    created: int = field(default_factory=lambda: int(time()))
    tokens: list[Token] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    done: Done | None = None
    is_open: bool = False

    def __post_init__(self) -> None:
        self.id = f"{PREFIX[self.kind]}{token_hex(12)}"
        self.tally.add(self.ready)

    def take(self, event: AnyEvent) -> None:
        """Adds one event of the engine's to the answer."""
        self.tally.add(event)
        match event:
            case Step():
                self.tokens.extend(event.tokens)
            case Notice():
                self.notices.append(event)
            case Done():
                self.done = event

    @property
    def stats(self) -> Stats:
        return self.tally.stats

    @property
    def finish_reason(self) -> str:
        assert self.done is not None
        return FINISHED.get(self.done.finish_reason, self.done.finish_reason)

    def opening(self) -> Iterator[dict[str, Any]]:
        """The chunk before any text, once: a chat's has the role."""
        was_open, self.is_open = self.is_open, True
        if self.kind == "chat" and not was_open:
            yield self._chunk({"delta": {"role": "assistant", "content": ""}})

    def chunk(self, step: Step) -> Iterator[dict[str, Any]]:
        """What one round added; nothing where all of its text is held back and its tokens were not asked for."""
        if not step.text and not self.asked.tokens and not self.has_logprobs:
            return
        who = {"localspec": msgspec.to_builtins(step)} if self.asked.tokens else {}
        choice = {"delta": {"content": step.text, **who}} if self.kind == "chat" else {"text": step.text, **who}
        more = {"timings": timings(self.stats)} if self.asked.timings_per_token else {}
        yield self._chunk({**choice, "logprobs": self._logprobs(step.tokens)}, **more)

    def closing(self) -> Iterator[dict[str, Any]]:
        """The last chunks: why it ended, then the usage where it was asked for; the very last has the figures."""
        choice: dict[str, Any] = {"delta": {}} if self.kind == "chat" else {"text": ""}
        ended = self._chunk({**choice, "finish_reason": self.finish_reason})
        if self.asked.include_usage:
            yield ended
            yield {**self._head(CHUNK), "choices": [], "usage": usage(self.stats), **self._figures()}
        else:
            yield {**ended, **self._figures()}

    def whole(self) -> dict[str, Any]:
        """The answer as one object."""
        text = "".join(token.text for token in self.tokens)
        who = {"localspec": {"tokens": msgspec.to_builtins(self.tokens)}} if self.asked.tokens else {}
        body = (
            {"message": {"role": "assistant", "content": text, **who}} if self.kind == "chat" else {"text": text, **who}
        )
        choice = {"index": 0, **body, "logprobs": self._logprobs(self.tokens), "finish_reason": self.finish_reason}
        return {**self._head(WHOLE), "choices": [choice], "usage": usage(self.stats), **self._figures()}

    @property
    def has_logprobs(self) -> bool:
        return self.asked.request.logprobs is not None

    def _logprobs(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        """The log-probabilities of these tokens, the last of the answer so far."""
        if not self.has_logprobs:
            return None
        if self.kind == "chat":
            return chat_logprobs(tokens)
        behind = sum(len(token.text) for token in tokens)
        return completion_logprobs(tokens, sum(len(token.text) for token in self.tokens) - behind)

    def _head(self, objects: dict[Kind, str]) -> dict[str, Any]:
        return {"id": self.id, "object": objects[self.kind], "created": self.created, "model": self.model}

    def _chunk(self, choice: dict[str, Any], **more: Any) -> dict[str, Any]:
        whole = {"index": 0, "logprobs": None, **choice}
        return {**self._head(CHUNK), "choices": [{"finish_reason": None, **whole}], **more}

    def _figures(self) -> dict[str, Any]:
        return {"timings": timings(self.stats), "localspec": own_figures(self.spec, self.stats, self.notices)}
