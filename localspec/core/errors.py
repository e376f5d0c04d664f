"""The errors a user can meet: one tree, each with a code, a hint that gives the next command, and an exit code.

LocalspecError
├── UsageError            2  the command line, a setting or an option is wrong
├── CatalogError          2  models.toml cannot be read
├── NotDownloaded         3  unknown model, or known and not on disk
├── AccessDenied          4  the hub refuses the files, or a server the key
├── DoesNotFit            5  memory or disk
├── ContextOverflow       5  the conversation is longer than the context
├── IncompatiblePair      6  the drafter does not speak the target's tokens
├── Divergence            6  drafting changed the text
├── PullError             7  the network, or bytes that are not what was promised
│   └── HubAway           7  the hub cannot be reached, is silent or has a fault of its own
├── RemoteError           7  a server cannot be reached, or sends no valid answer
├── CheckpointError       1  the files of a model are broken, hostile, or of a kind we cannot run
├── HistoryError          1  the file with the chats cannot be read or written
├── NoSuchChat            3  the history has no such chat
├── NoChatTemplate        1  a base model was asked to chat
├── EngineError           1  the model failed while it was answering
├── EngineDied            1  the process that ran the model is gone
└── Cancelled           130  the user stopped it

Knows nothing about how they are shown.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import ClassVar

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # an OSError of these kinds: the disk is full
ENGINE_STOPPED = "The engine stopped."  # an EngineDied whose process is gone
UPDATE = "Update localspec: git pull in its clone, then make chat, or pip install . again."  # it is on no registry
REPEAT = "Download the model again, or choose another."  # the hint for a model's broken files
CHOOSE_ANOTHER = "Choose another model."  # the hint for a model that localspec cannot run
NO_ANSWER = "There is no answer to continue."


class LocalspecError(Exception):
    """Shown to the user as `message`, then `hint`; never with a traceback."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class UsageError(LocalspecError):
    """A flag, an option or a setting is wrong. The user types it again."""

    code, exit_code = "usage", 2


class CatalogError(LocalspecError):
    """models.toml does not parse, or says something it must not. The user edits it."""

    code, exit_code = "catalog", 2


class NotDownloaded(LocalspecError):
    """The model is unknown or not on disk. The user names another, or a folder."""

    code, exit_code = "not_downloaded", 3


class AccessDenied(LocalspecError):
    """The hub refuses the files: the user logs in or accepts the licence. Or a server refuses the key, or wants one."""

    code, exit_code = "access_denied", 4


class DoesNotFit(LocalspecError):
    """Raised where memory or disk does not suffice. The user picks a smaller format or context."""

    code, exit_code = "does_not_fit", 5


class ContextOverflow(LocalspecError):
    """The prompt is longer than the context. The user shortens it, raises --ctx or starts a new chat.

    `turns_over`: so many of the oldest turns must go for the rest to fit; 0 where that would not help. `prompt_n`: the
    prompt's tokens.
    """

    code, exit_code = "context_overflow", 5

    def __init__(self, message: str, *, hint: str = "", turns_over: int = 0, prompt_n: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.turns_over, self.prompt_n = turns_over, prompt_n

    @classmethod
    def of(cls, prompt_n: int, context: int, *, hint: str = "", turns_over: int = 0) -> ContextOverflow:
        message = f"The prompt is {prompt_n:,} tokens and the context holds {context:,}."
        return cls(message, hint=hint, turns_over=turns_over, prompt_n=prompt_n)


class IncompatiblePair(LocalspecError):
    """The drafter does not speak the target's tokens. Named by the user: exit 6; chosen by us: a Notice, and plain."""

    code, exit_code = "incompatible_pair", 6


class Divergence(LocalspecError):
    """`localspec verify` found that drafting changed the text: a bug of localspec's. The user reports it, and
    drafts with another drafter or none."""

    code, exit_code = "divergence", 6


class PullError(LocalspecError):
    """A download failed or its bytes are wrong. The user runs the same command again."""

    code, exit_code = "pull", 7


class HubAway(PullError):
    """The hub cannot be reached, is silent or busy, or has a fault of its own: nothing has to be changed here. What
    waits asks again by itself; else the user runs the same command later."""

    code = "hub_away"


class RemoteError(LocalspecError):
    """A server cannot be reached, is busy, or sends no valid answer. What was written is kept. The user asks
    again."""

    code, exit_code = "remote", 7


class CheckpointError(LocalspecError):
    """A model's files are broken, hostile or of a kind we cannot run. The user fetches them again or picks another."""

    code = "checkpoint"


class HistoryError(LocalspecError):
    """The chats cannot be read or saved: a full or read-only disk, a newer file. The chat goes on, unsaved."""

    code = "history"


class NoSuchChat(LocalspecError):
    """The chat or message is not in the history, or no longer. The user lists the chats."""

    code, exit_code = "no_such_chat", 3


class NoChatTemplate(LocalspecError):
    """A base model was asked to chat. The user completes text instead: localspec run --raw."""

    code = "no_chat_template"


class EngineError(LocalspecError):
    """The model failed while answering (invalid numbers, out of memory). What was written is kept."""

    code = "engine"


class EngineDied(LocalspecError):
    """The engine's process ended, or lost its GPU. What was written is kept; the user reloads the model."""

    code = "engine_died"


class Cancelled(LocalspecError):
    """The user stopped the answer. Raised in the engine between forwards, and shown as finish_reason "cancelled"."""

    code, exit_code = "cancelled", 130  # 128 + SIGINT, as shells count


def error_of(code: str, message: str, *, hint: str = "") -> LocalspecError:
    """The error with this code: what crossed a pipe as a Failure is raised again on the other side."""
    kind = next((one for one in kinds_of(LocalspecError) if one.code == code), LocalspecError)
    return kind(message, hint=hint)


def kinds_of(kind: type[LocalspecError]) -> Iterator[type[LocalspecError]]:
    """Every kind below this one."""
    for one in kind.__subclasses__():
        yield one
        yield from kinds_of(one)


def first_line(fault: BaseException) -> str:
    """The first line of an error, for use inside a sentence; a line that ends in a colon is joined with the next."""
    text = fault.message if isinstance(fault, LocalspecError) else str(fault)
    lines = [line.strip() for line in text.strip().splitlines()] or [type(fault).__name__]
    first = lines.pop(0)
    while first.endswith(":") and lines:
        first = f"{first} {lines.pop(0)}"
    return first.rstrip(".")
