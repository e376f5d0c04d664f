"""A whole answer, made of the events of one that was under way. Knows no model."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.errors import UsageError, error_of
from localspec.core.events import AnyEvent, Done, Failure, FinishReason, Stats, Step, Token


@dataclass(frozen=True, slots=True)
class Result:
    """A whole answer. `tokens` say who wrote them; `stats` what it cost."""

    text: str
    tokens: tuple[Token, ...]
    stats: Stats
    finish_reason: FinishReason


class Gathered:
    """An answer's events, of which a Result is made at the end."""

    def __init__(self) -> None:
        self._tokens: list[Token] = []
        self._end: Done | Failure | None = None

    def take(self, event: AnyEvent) -> None:
        match event:
            case Step():
                self._tokens.extend(event.tokens)
            case Done() | Failure():
                self._end = event

    @property
    def is_over(self) -> bool:
        return self._end is not None

    def result(self) -> Result:
        """The whole answer; the error that ended it is raised."""
        match self._end:
            case Done(finish_reason=reason, stats=stats):
                return Result("".join(token.text for token in self._tokens), tuple(self._tokens), stats, reason)
            case Failure(code=code, message=message, hint=hint):
                raise error_of(code, message, hint=hint)
        raise UsageError("The answer was not completed.", hint="Ask again.")
