"""One answer in Python, as it comes. Knows no conversation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from localspec.core.events import AnyEvent
from localspec.core.requests import GenerateRequest
from localspec.core.trace import TracedRound
from localspec.runtime.model import Model
from localspec.runtime.result import Gathered, Result


class Stream:
    """An answer as it comes: iterate over its events, `cancel` from any thread, `result` for all of it."""

    def __init__(
        self, model: Model, request: GenerateRequest, trace: Callable[[TracedRound], object] | None = None
    ) -> None:
        self._cancel = threading.Event()
        self._events = model.answer(request, self._cancel.is_set, trace)
        self._gathered = Gathered()

    def __iter__(self) -> Iterator[AnyEvent]:
        for event in self._events:
            self._gathered.take(event)
            yield event

    def cancel(self) -> None:
        """Stop before the next forward; what was written stays."""
        self._cancel.set()

    def close(self) -> None:
        """Drops the rest, so that the next answer may begin."""
        self._events.close()

    def result(self) -> Result:
        """The whole answer; runs to its end first."""
        for _ in self:
            pass
        return self._gathered.result()
