"""What has been said, as the engine is told it. Knows nothing about how it is shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from localspec.requests import GenerateRequest, Message
from localspec.tui.tuning import Tuning


@dataclass
class Conversation:
    """Whole turns only: a question without an answer would make the next one follow it, which templates refuse."""

    system: str | None = None  # of every chat that begins in this program
    own_system: str | None = None  # of this chat and no other; "" for none
    history: list[Message] = field(default_factory=list)
    tuning: Tuning = field(default_factory=Tuning)

    @property
    def instructions(self) -> str:
        """The system prompt of the next question."""
        if self.own_system is not None:
            return self.own_system
        return self.system or self.tuning.preset_table.system or ""

    def request(self, question: str) -> GenerateRequest:
        first = [Message("system", self.instructions)] if self.instructions else []
        messages = (*first, *self.history, Message("user", question))
        return GenerateRequest(messages, sampling=self.tuning.sampling)

    def recall(self, system: str | None, messages: Iterable[Message]) -> None:
        """What was said before this program began, oldest first."""
        if not self.system:
            self.own_system = system
        for before, after in pairwise(messages):
            if (before.role, after.role) == ("user", "assistant"):
                self.keep(before.content, after.content)

    def keep(self, question: str, answer: str) -> None:
        """A turn that ended, however it ended: partial answers count."""
        if answer:
            self.history += [Message("user", question), Message("assistant", answer)]

    def forget(self) -> None:
        self.own_system = None
        self.history.clear()
