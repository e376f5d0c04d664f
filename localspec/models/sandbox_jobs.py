"""The jobs and answers of the sandbox: records that cross its pipes, each after its length.

Knows nothing about the processes at either end.
"""

from __future__ import annotations

from typing import IO, Final, Literal

from localspec.core.events import Record
from localspec.core.requests import Message, Template

PairReason = Literal["same", "padding", "extra-tokens", "controls-differ", "translate", "untranslatable"]
TRANSLATE: Final = "translate"


class TokenizerText(Record, frozen=True, tag="tokenizer"):
    """A tokenizer.json. `where`: its name in errors; `rows`: of the model's embedding."""

    text: str
    where: str
    rows: int | None = None


class OpenPrompter(Record, frozen=True, tag="open"):
    """Opens the prompter of a model, for all later jobs. `name`: the model's name in errors."""

    tokenizer: TokenizerText
    name: str
    template: str | None
    special_tokens: dict[str, str]


class UseTemplate(Record, frozen=True, tag="use"):
    """Describes the prompter with a template of the user's."""

    template: Template


class EncodeChat(Record, frozen=True, tag="chat"):
    """Encodes a conversation, up to where the assistant answers. `template` replaces the model's own."""

    messages: tuple[Message, ...]
    template: Template | None


class EncodeAnswer(Record, frozen=True, tag="answer"):
    """Encodes an answer so far, to follow the conversation `before` it."""

    before: tuple[Message, ...]
    text: str
    template: Template | None


class EncodePart(Record, frozen=True, tag="part"):
    """Encodes a part of an answer, to follow other text."""

    text: str


class EncodeText(Record, frozen=True, tag="text"):
    """Encodes a raw text."""

    text: str


class CheckTemplate(Record, frozen=True, tag="check"):
    """Compiles a template."""

    source: str
    name: str


class ComparePair(Record, frozen=True, tag="compare"):
    """Decides whether a model with one tokenizer may draft for a model with the other."""

    target: TokenizerText
    drafter: TokenizerText


class PrompterOpened(Record, frozen=True, tag="opened"):
    """Describes an open prompter."""

    control_ids: frozenset[int]
    num_ids: int
    can_chat: bool


class Ids(Record, frozen=True, tag="ids"):
    ids: list[int]


class Verdict(Record, frozen=True, tag="verdict"):
    """Whether the drafter may draft; `detail` says why."""

    ok: bool
    reason: PairReason
    detail: str


class JobDone(Record, frozen=True, tag="done"):
    """The job succeeded, without a result."""


class Refused(Record, frozen=True, tag="refused"):
    """The job failed with a LocalspecError, named by its code."""

    code: str
    message: str
    hint: str


class TooLarge(Record, frozen=True, tag="too-large"):
    """The job ran out of memory, in Python."""


Job = OpenPrompter | UseTemplate | EncodeChat | EncodeAnswer | EncodePart | EncodeText | CheckTemplate | ComparePair
JobAnswer = PrompterOpened | Ids | Verdict | JobDone | Refused | TooLarge


class Order(Record, frozen=True):
    """A job and its limits: seconds of the processor, and bytes of memory beyond what the process has."""

    job: Job
    seconds: float
    num_bytes: int


PREFIX = 4  # bytes


def receive(stream: IO[bytes]) -> bytes:
    """Reads a message; empty at the end of the stream."""
    return stream.read(int.from_bytes(stream.read(PREFIX), "little"))


def send(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(PREFIX, "little") + message)
    stream.flush()
