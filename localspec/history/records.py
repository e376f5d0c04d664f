"""The records of a history. Texts are unchanged: the code that shows one cleans it.

Knows nothing about SQL. Times are ISO 8601 in UTC, chat ids are text, message ids only grow and are never reused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Self, TypedDict

import msgspec

from localspec.core.errors import NoSuchChat
from localspec.core.events import DrafterSums, FinishReason, Record, Stats, Step, per_second, share_accepted
from localspec.core.requests import Role
from localspec.history.tree import Tree

Status = Literal["done", "partial", "stopped", "length", "error"]
WhenFull = Literal["stop", "drop-oldest"]
SettingValue = str | int | float | bool | None | tuple[str, ...]
STATUS_OF: Mapping[FinishReason | None, Status] = {
    None: "partial",
    "stop": "done",
    "length": "length",
    "context": "length",
    "cancelled": "stopped",
    "error": "error",
}
STORED_AS = {"turns_left_out": "untold"}  # a column and a JSON key keep their first name
ID_LENGTH = 10  # letters of a chat's id
TITLE_LENGTH = 60  # what a sidebar of 30 columns shows, twice


def first_line(text: str) -> str:
    """A title for a chat that begins with this text."""
    words = " ".join(next((line for line in text.splitlines() if line.strip()), "").split())
    return words if len(words) <= TITLE_LENGTH else words[: TITLE_LENGTH - 1].rstrip() + "…"


def gone(what: str) -> NoSuchChat:
    return NoSuchChat(f"This {what} is no longer in the history: it was deleted elsewhere.")


class NewChat(Record, frozen=True):
    """A chat that is not in the history yet."""

    model_key: str
    title: str = ""
    preset: str | None = None
    system: str | None = None


class StoredChat(Record, frozen=True, rename=STORED_AS):
    """A chat without its messages. `head_id`: the last message of the branch that was read last.

    `when_full`: what to do when a question does not fit into the context, if the user chose for this chat.
    `turns_left_out`: how many of the oldest are left out of the model's context.
    """

    id: str
    title: str
    created_at: str
    updated_at: str
    model_key: str
    preset: str | None
    system: str | None
    head_id: int | None
    pinned: bool
    num_messages: int
    when_full: WhenFull | None = None
    turns_left_out: int = 0


class Changes(TypedDict, total=False):
    """The fields of a chat that may change."""

    title: str
    model_key: str
    preset: str | None
    system: str | None
    pinned: bool
    when_full: WhenFull | None
    turns_left_out: int


class Attachment(Record, frozen=True):
    """A file or pasted text attached to a message. `text` is what the model reads of it."""

    path: str | None = None
    mime: str | None = None
    sha256: str | None = None
    text: str | None = None


class Unsent(Record, frozen=True):
    """A message that was written and not sent, with what was attached to it. `server`: to which it would have gone, ""
    for a model on this machine. `edits`: the message of which it was to be another version. `id` is its row's, 0 for
    one that is not in the history yet."""

    content: str
    attachments: tuple[Attachment, ...] = ()
    server: str = ""
    edits: int | None = None
    id: int = 0


class Generation(Record, frozen=True):
    """How an answer was generated: model, settings and statistics. `params` and `versions` have the caller's names."""

    target: str
    target_sha: str | None = None
    quant: str | None = None
    device: str | None = None
    draft: str | None = None
    params: dict[str, SettingValue] = msgspec.field(default_factory=dict)
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    stats: Stats = Stats()


class SavedAnswer(Record, frozen=True):
    """An answer so far: its whole text and every round. It is partial until its stats have a finish_reason. `reason`:
    the sentence of the error that ended it."""

    text: str
    generation: Generation
    steps: tuple[Step, ...] = ()
    reason: str = ""

    @property
    def status(self) -> Status:
        return STATUS_OF[self.generation.stats.finish_reason]


class StoredMessage(Record, frozen=True):
    """A message as the history has it. Its rounds are read separately, by `History.steps`.

    `edited`: how many of an answer's first characters the user wrote; a model may have continued them. `reason`: why
    the answer failed, or why the question has none; "" where that is not known.
    """

    id: int
    chat_id: str
    parent_id: int | None
    role: Role
    content: str
    status: Status
    created_at: str
    attachments: tuple[Attachment, ...] = ()
    generation: Generation | None = None
    edited: int = 0
    reason: str = ""

    @property
    def by_user(self) -> str:
        """What the user wrote of an answer."""
        return self.content[: self.edited]

    @classmethod
    def unsaved(
        cls,
        chat_id: str,
        role: Role,
        content: str,
        parent_id: int | None = None,
        *,
        status: Status = "done",
        attachments: tuple[Attachment, ...] = (),
        edited: int = 0,
    ) -> Self:
        """A message to add below `parent_id`, or at the top of the chat; saving it gives it an id and a time."""
        return cls(0, chat_id, parent_id, role, content, status, "", attachments, edited=edited)


@dataclass(frozen=True, slots=True)
class OpenChat:
    """A chat with all its messages."""

    chat: StoredChat
    tree: Tree[StoredMessage]

    @property
    def branch(self) -> list[StoredMessage]:
        """The messages on the way to the head, first to last."""
        return self.tree.path(self.chat.head_id)

    @property
    def to_read(self) -> list[StoredMessage]:
        """The branch; the newest one, where the chat was taken back to before its first message."""
        return self.branch or self.tree.path(self.tree.newest)

    @property
    def num_left_out(self) -> int:
        """How many branches end elsewhere than the one to read."""
        read = {message.id for message in self.to_read}
        return sum(leaf not in read for leaf in self.tree.leaves())


class TextPart(Record, frozen=True):
    """A stretch of a found text; `matches` when it matches the query."""

    text: str
    matches: bool


class SearchHit(Record, frozen=True):
    """A match in a message, or in the chat's title when there is no message."""

    chat_id: str
    title: str
    message_id: int | None
    role: Role | None
    at: str
    parts: tuple[TextPart, ...]


class ModelTotals(Record, frozen=True):
    """Sums over a model's answers with one drafter in one weight format; rates are properties. Times in milliseconds.

    `draft` is what --draft takes for the drafter, "" for none; `quant` is "" where it was not recorded.
    `compared_ms` is the time of answers whose speed-up was measured; without a draft they would have taken `plain_ms`.
    `by_drafter`: the drafted tokens by the kind of drafter that proposed them.
    """

    target: str
    draft: str
    quant: str
    answers: int
    prompt_n: int
    predicted_n: int
    predicted_ms: float
    draft_n_accepted: int
    draft_n_rejected: int
    compared_ms: float
    plain_ms: float
    by_drafter: dict[str, DrafterSums] = msgspec.field(default_factory=dict)

    @property
    def predicted_per_second(self) -> float:
        return per_second(self.predicted_n, self.predicted_ms)

    @property
    def acceptance_rate(self) -> float | None:
        return share_accepted(self.draft_n_accepted, self.draft_n_rejected)

    @property
    def speedup(self) -> float | None:
        return self.plain_ms / self.compared_ms if self.compared_ms else None


class HistoryTotals(Record, frozen=True):
    """The whole history in figures."""

    chats: int
    messages: int
    file_bytes: int
    models: tuple[ModelTotals, ...]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
