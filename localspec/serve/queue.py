"""The queue before the engine: as many requests are let in as it answers at once, a few wait in their order, and more
are refused. A chat goes ahead of others that wait, and is refused for other chats alone.

Belongs to one event loop. Knows nothing about what is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from localspec.serve.faults import full

WAITING = 4  # chats, and as many others, beside those that are answered


class Ticket:
    """A request in the queue. `position` 0: it is its turn; -1: it has left."""

    def __init__(self, queue: Queue, *, ahead: bool) -> None:
        self._queue, self.ahead = queue, ahead
        self.moved = asyncio.Event()

    @property
    def position(self) -> int:
        return self._queue.position(self)

    def leave(self) -> None:
        """Lets the next one in. Twice does no harm."""
        self._queue.remove(self)


class Queue:
    """`changed` is called whenever a request joins or leaves; `parallel`: how many are answered at once now."""

    def __init__(
        self, changed: Callable[[], object], parallel: Callable[[], int] = lambda: 1, waiting: int = WAITING
    ) -> None:
        self._answered: list[Ticket] = []
        self._waiting: list[Ticket] = []
        self._changed, self._parallel = changed, parallel
        self.most_waiting = waiting

    @property
    def answering(self) -> int:
        return len(self._answered)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def check(self, *, ahead: bool = False) -> None:
        """RequestRefused where too many of its kind wait."""
        alike = sum(one.ahead == ahead for one in self._waiting)
        if alike >= self.most_waiting and self.answering >= self._parallel():
            raise full(self.answering, self.waiting, self._end(ahead=ahead) + 1)

    def join(self, *, ahead: bool = False) -> Ticket:
        """Joins at the end, or ahead of all that are not; RequestRefused where too many of its kind wait."""
        self.check(ahead=ahead)
        ticket = Ticket(self, ahead=ahead)
        at = self._end(ahead=ahead)
        self._waiting.insert(at, ticket)
        self._move(at)
        return ticket

    def position(self, ticket: Ticket) -> int:
        if ticket in self._answered:
            return 0
        return self._waiting.index(ticket) + 1 if ticket in self._waiting else -1

    def remove(self, ticket: Ticket) -> None:
        for tickets in (self._answered, self._waiting):
            if ticket in tickets:
                tickets.remove(ticket)
                ticket.moved.set()
                self._move(0)

    def _end(self, *, ahead: bool) -> int:
        """How many wait before one that joins."""
        return sum(one.ahead for one in self._waiting) if ahead else self.waiting

    def _move(self, first: int) -> None:
        """Lets in as many as can be answered; those that wait from the `first` on have moved."""
        moved = self._waiting[first:]
        while self._waiting and self.answering < self._parallel():
            self._answered.append(self._waiting.pop(0))
        for one in moved:
            one.moved.set()
        self._changed()
