"""One request from the queue to the last event of its answer, and the way back when its client is gone.

Knows neither HTTP nor what the answer looks like.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from msgspec.structs import replace

from localspec.core.events import AnyEvent, Loading, SpecCard
from localspec.core.requests import SpecOptions
from localspec.serve.bodies import CompletionRequest
from localspec.serve.engine import Host, ServedAnswer
from localspec.serve.queue import Queue, Ticket

PING = 15.0  # seconds of silence after which a proxy might close the line


class QueuedAnswer:
    """Joins the queue when it is made, `ahead` of others for a chat: RequestRefused while the model loads, or where the
    queue is full."""

    def __init__(
        self, host: Host, queue: Queue, asked: CompletionRequest, ping: float = PING, *, ahead: bool = False
    ) -> None:
        host.check_loaded()
        self._host, self.asked, self._ping = host, asked, ping
        self._ticket: Ticket = queue.join(ahead=ahead)
        self._answer: ServedAnswer | None = None

    @property
    def is_next(self) -> bool:
        """Whether nothing stands before it."""
        return self._ticket.position == 0 and self._host.state == "ready"

    @property
    def spec(self) -> SpecCard:
        """The drafter as it is used for this answer."""
        assert self._host.ready is not None
        usual, options = self._host.ready.spec, self._asked_spec
        return usual if options is None or usual.kind == "off" else replace(usual, mode=options.mode, k=options.k)

    @property
    def _asked_spec(self) -> SpecOptions | None:
        assert self._host.ready is not None
        usual = self._host.ready.spec
        return self.asked.speculation.over(SpecOptions(usual.mode, usual.k))

    def close(self) -> None:
        """Leaves the queue, or stops the answer. Twice does no harm."""
        if self._answer is None:
            self._ticket.leave()
        else:
            self._answer.cancel()

    async def turn(self) -> AsyncIterator[str]:
        """Waits until the engine is free for it; yields, meanwhile, in a few words what it waits for."""
        while not self.is_next:
            moved, position = self._ticket.moved, self._ticket.position
            moved.clear()
            if position < 0:
                return
            if position > 0:
                yield f"queued {position}"
                await within(moved, self._ping)
                continue
            self._host.wake()
            yield loading_words(self._host.progress)
            await within(self._host.settled, self._ping)
            if self._host.is_out_of_order:
                return

    async def events(self) -> AsyncIterator[AnyEvent]:
        """The answer's events, after `turn`; none where the client left before."""
        if self._ticket.position < 0:
            return
        request = replace(self.asked.request, spec=self._asked_spec) if self._host.ready else self.asked.request
        self._answer = answer = self._host.ask(request, self._ticket.leave)
        while (event := await answer.next()) is not None:
            yield event


async def within(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def loading_words(progress: Loading) -> str:
    if progress.total <= 1:
        return "loading"
    return f"loading {100 * progress.done // progress.total} %"
