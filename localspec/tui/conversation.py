"""What has been said, as the engine is told it. Knows nothing about how it is shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from localspec.requests import GenerateRequest, Message
from localspec.shortening import without_oldest


@dataclass
class Conversation:
    """Whole turns only: a question without an answer would make the next one follow it, which templates refuse."""

    system: str | None = None
    past_system: str | None = None  # of the chat that is gone on with, and of no other
    history: list[Message] = field(default_factory=list)
    untold: int = 0  # of the oldest turns, so many are not told any more

    def request(self, question: str) -> GenerateRequest:
        system = self.system or self.past_system
        first = [Message("system", system)] if system else []
        whole = (*first, *self.history, Message("user", question))
        return GenerateRequest(messages=without_oldest(whole, self.untold))

    @property
    def turns_told(self) -> int:
        return max(0, len(self.history) // 2 - self.untold)

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
        self.past_system, self.untold = None, 0
        self.history.clear()
