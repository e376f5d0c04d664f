"""The queue before the engine: one request is answered, a few wait in their order, and more are refused.

Belongs to one event loop. Knows nothing about what is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from localspec.serve.faults import full

WAITING = 4  # beside the one that is answered


class Ticket:
    """A request in the queue. `position` 0: it is its turn; -1: it has left."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.moved = asyncio.Event()

    @property
    def position(self) -> int:
        return self._queue.position(self)

    def leave(self) -> None:
        """Lets the next one in. Twice does no harm."""
        self._queue.remove(self)


class Queue:
    """`changed` is called whenever a request joins or leaves."""

    def __init__(self, changed: Callable[[], object], waiting: int = WAITING) -> None:
        self._tickets: list[Ticket] = []
        self._changed = changed
        self.most_waiting = waiting

    @property
    def answering(self) -> int:
        return min(1, len(self._tickets))

    @property
    def waiting(self) -> int:
        return max(0, len(self._tickets) - 1)

    def check(self) -> None:
        """RequestRefused where too many wait."""
        if len(self._tickets) > self.most_waiting:
            raise full(self.most_waiting)

    def join(self) -> Ticket:
        """Joins at the end; RequestRefused where too many wait."""
        self.check()
        ticket = Ticket(self)
        self._tickets.append(ticket)
        self._changed()
        return ticket

    def position(self, ticket: Ticket) -> int:
        return self._tickets.index(ticket) if ticket in self._tickets else -1

    def remove(self, ticket: Ticket) -> None:
        if ticket in self._tickets:
            self._tickets.remove(ticket)
            for one in (ticket, *self._tickets):
                one.moved.set()
            self._changed()
