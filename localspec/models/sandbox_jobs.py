"""What is asked of the sandbox and what it answers: records that cross its pipes, each behind its length.

Knows nothing about who asks and who does it.
"""

from __future__ import annotations

from typing import IO, Literal

from localspec.core.events import Record
from localspec.core.requests import Message, Template

Reason = Literal["same", "padding", "extra-tokens", "controls-differ", "tokens-differ", "text-differs"]


class TokenizerText(Record, frozen=True, tag="tokenizer"):
    """A tokenizer.json. `where`: what errors call it; `rows`: those of the model's embedding."""

    text: str
    where: str
    rows: int | None = None


class OpenPrompter(Record, frozen=True, tag="open"):
    """The prompter of one model, for all jobs that follow. `name`: what errors call the model."""

    tokenizer: TokenizerText
    name: str
    template: str | None
    special_tokens: dict[str, str]


class UseTemplate(Record, frozen=True, tag="use"):
    """How the prompter is with a template of the user's."""

    template: Template


class EncodeChat(Record, frozen=True, tag="chat"):
    """A conversation, up to where the assistant answers. `template`: in place of the model's own."""

    messages: tuple[Message, ...]
    template: Template | None


class EncodeAnswer(Record, frozen=True, tag="answer"):
    """An answer so far, to stand behind the conversation `before` it."""

    before: tuple[Message, ...]
    text: str
    template: Template | None


class EncodeText(Record, frozen=True, tag="text"):
    """A text as it is."""

    text: str


class CheckTemplate(Record, frozen=True, tag="check"):
    """Does this template compile?"""

    source: str
    name: str


class ComparePair(Record, frozen=True, tag="compare"):
    """May the model with the one tokenizer draft for that with the other?"""

    target: TokenizerText
    drafter: TokenizerText


class Opened(Record, frozen=True, tag="opened"):
    """A prompter, as far as others must know it."""

    control_ids: frozenset[int]
    num_ids: int
    can_chat: bool


class Ids(Record, frozen=True, tag="ids"):
    ids: list[int]


class Verdict(Record, frozen=True, tag="verdict"):
    """May the drafter draft? `detail` says why in words."""

    ok: bool
    reason: Reason
    detail: str


class Done(Record, frozen=True, tag="done"):
    """There is nothing to say."""


class Refused(Record, frozen=True, tag="refused"):
    """One of our errors, by its code."""

    code: str
    message: str
    hint: str


class TooLarge(Record, frozen=True, tag="too-large"):
    """Memory ran out, in Python."""


Job = OpenPrompter | UseTemplate | EncodeChat | EncodeAnswer | EncodeText | CheckTemplate | ComparePair
Answer = Opened | Ids | Verdict | Done | Refused | TooLarge


class Order(Record, frozen=True):
    """A job and its limits: seconds of the processor, and bytes of memory beyond what the process has."""

    job: Job
    seconds: float
    num_bytes: int


PREFIX = 4  # bytes


def receive(stream: IO[bytes]) -> bytes:
    """A message; empty when there are no more."""
    return stream.read(int.from_bytes(stream.read(PREFIX), "little"))


def send(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(PREFIX, "little") + message)
    stream.flush()
