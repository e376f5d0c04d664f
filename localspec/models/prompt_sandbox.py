"""A model's prompter in a sandbox: converts conversations and texts to ids as prompt.py does, within limits.

Ids are decoded in this process, since that happens in every round. Knows no weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from localspec.core.requests import Message, Template
from localspec.models.checkpoint import Snapshot, parse_tokenizer
from localspec.models.prompt import Prompter
from localspec.models.sandbox import Sandbox
from localspec.models.sandbox_jobs import (
    EncodeAnswer,
    EncodeChat,
    EncodePart,
    EncodeText,
    Ids,
    OpenPrompter,
    PrompterOpened,
    UseTemplate,
)


@dataclass(frozen=True, slots=True)
class SandboxedPrompter:
    """A model's tokenizer and template. Another template is another record with the same sandbox."""

    tokenizer: Tokenizer
    sandbox: Sandbox
    card: PrompterOpened
    template: Template | None = None
    cancelled: Callable[[], bool] | None = None

    @classmethod
    def open(cls, snapshot: Snapshot) -> SandboxedPrompter:
        """Opens a snapshot's tokenizer and template; CheckpointError where one of them does not work."""
        sandbox, job = Sandbox(), opening_of(snapshot)
        card = sandbox.ask(job, PrompterOpened)
        return cls(parse_tokenizer(job.tokenizer.text, job.tokenizer.where), sandbox, card)  # the sandbox has tried it

    def using(self, template: Template | None, cancelled: Callable[[], bool] | None = None) -> SandboxedPrompter:
        """This prompter with another template, None for the model's own. Jobs are ended once `cancelled` returns
        True."""
        card = self.sandbox.ask(UseTemplate(template), PrompterOpened, cancelled) if template else self.card
        return SandboxedPrompter(self.tokenizer, self.sandbox, card, template, cancelled)

    @property
    def control_ids(self) -> frozenset[int]:
        return self.card.control_ids

    @property
    def num_ids(self) -> int:
        return self.card.num_ids

    @property
    def can_chat(self) -> bool:
        return self.card.can_chat

    def chat(self, messages: Sequence[Message]) -> list[int]:
        return self.sandbox.ask(EncodeChat(tuple(messages), self.template), Ids, self.cancelled).ids

    def words(self, before: Sequence[Message], answer: str) -> list[int]:
        return self.sandbox.ask(EncodeAnswer(tuple(before), answer, self.template), Ids, self.cancelled).ids

    def running(self, text: str) -> list[int]:
        return self.sandbox.ask(EncodePart(text), Ids, self.cancelled).ids

    def text(self, text: str) -> list[int]:
        return self.sandbox.ask(EncodeText(text), Ids, self.cancelled).ids

    def close(self) -> None:
        """Ends the sandbox; a later job starts another."""
        self.sandbox.close()


AnyPrompter = Prompter | SandboxedPrompter


def opening_of(snapshot: Snapshot) -> OpenPrompter:
    """The job that opens a snapshot's prompter."""
    return OpenPrompter(snapshot.read_tokenizer(), snapshot.name, snapshot.chat_template, dict(snapshot.special_tokens))
