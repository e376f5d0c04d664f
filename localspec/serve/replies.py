"""Responses: JSON, refusals in OpenAI's shape, and streams of server-sent events. Knows no model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any  # Any: JSON

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from localspec.serve.faults import RequestRefused

ENCODE = msgspec.json.Encoder().encode
STREAM_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}  # proxies must not hold tokens back
DONE = b"data: [DONE]\n\n"


class Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return ENCODE(content)


def refusal(fault: RequestRefused, *, close: bool = False) -> Json:
    """`close`: the connection ends, since the body was not read."""
    headers = {**fault.headers, **({"connection": "close"} if close else {})}
    return Json(fault.body, fault.status, headers)


def data(content: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + ENCODE(content) + b"\n\n"


def comment(words: str) -> bytes:
    """A line that clients ignore and proxies pass on."""
    return f": {words}\n\n".encode()


class EventStream(Response):
    """Sends lines as they come. `gone` is called when the client has left, or the stream ends in any other way."""

    media_type = "text/event-stream"

    def __init__(self, lines: AsyncIterator[bytes], gone: Callable[[], object]) -> None:
        super().__init__(headers=STREAM_HEADERS)
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]
        self._lines, self._gone = lines, gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        async with watched(receive, self._gone):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for line in self._lines:
                await send({"type": "http.response.body", "body": line, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


@asynccontextmanager
async def watched(receive: Receive, gone: Callable[[], object]) -> AsyncIterator[None]:
    """Calls `gone` as soon as the client has left, and at the end in any case."""
    watcher = asyncio.create_task(until_gone(receive))
    watcher.add_done_callback(lambda _: gone())
    try:
        yield
    finally:
        watcher.cancel()
        gone()


async def until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
