"""What has been said, as the engine is told it. Knows nothing about how it is shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from localspec.requests import GenerateRequest, Message


@dataclass
class Conversation:
    """Whole turns only: a question without an answer would make the next one follow it, which templates refuse."""

    system: str | None = None
    past_system: str | None = None  # of the chat that is gone on with, and of no other
    history: list[Message] = field(default_factory=list)

    def request(self, question: str, so_far: str = "") -> GenerateRequest:
        """An answer to this, or more of it."""
        begun = [Message("assistant", so_far)] if so_far else []
        messages = (*self.opening, *self.history, Message("user", question), *begun)
        return GenerateRequest(messages=messages, continues=bool(begun))

    def again(self) -> GenerateRequest | None:
        """The last question once more, as if it had not been answered."""
        return GenerateRequest(messages=(*self.opening, *self.history[:-1])) if self.history else None

    @property
    def opening(self) -> list[Message]:
        system = self.system or self.past_system
        return [Message("system", system)] if system else []

    def reopen(self) -> str:
        """The last question, whose turn counts as not ended again; empty where nothing was said."""
        if not self.history:
            return ""
        question, _ = self.history[-2:]
        del self.history[-2:]
        return question.content

    def recall(self, system: str | None, messages: Iterable[Message]) -> None:
        """What was said before this program began, oldest first."""
        self.past_system = system
        for before, after in pairwise(messages):
            if (before.role, after.role) == ("user", "assistant"):
                self.keep(before.content, after.content)

    def keep(self, question: str, answer: str) -> None:
        """A turn that ended, however it ended: partial answers count."""
        if answer:
            self.history += [Message("user", question), Message("assistant", answer)]

    def forget(self) -> None:
        self.past_system = None
        self.history.clear()
