"""What has been said, as the engine is told it. Knows nothing about how it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.requests import GenerateRequest, Message


@dataclass
class Conversation:
    """Whole turns only: a question without an answer would make the next one follow it, which templates refuse."""

    system: str | None = None
    history: list[Message] = field(default_factory=list)

    def request(self, question: str) -> GenerateRequest:
        first = [Message("system", self.system)] if self.system else []
        return GenerateRequest(messages=(*first, *self.history, Message("user", question)))

    def keep(self, question: str, answer: str) -> None:
        """A turn that ended, however it ended: partial answers count."""
        if answer:
            self.history += [Message("user", question), Message("assistant", answer)]

    def forget(self) -> None:
        self.history.clear()
