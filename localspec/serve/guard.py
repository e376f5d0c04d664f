"""The outermost layer of the server: every request passes security's rules before it reaches a route.

Also the last to see an error of ours: stderr gets the lines of code, and no prompt.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any  # Any: ASGI's messages

from starlette.types import ASGIApp, Receive, Scope, Send

from localspec.serve.faults import RequestRefused
from localspec.serve.replies import refusal
from localspec.serve.security import AccessRules, allowed_origin, check, cors_headers, has_key, preflight_headers

HAS_KEY = "localspec.has_key"  # in a request's scope: whether it has the key, or needs none


class Guard:
    """`refused` is called with the status of all that it refuses."""

    def __init__(self, app: ASGIApp, rules: AccessRules, refused: Callable[[int], object]) -> None:
        self._app, self._rules, self._refused = app, rules, refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        origin = allowed_origin(self._rules, scope["headers"])
        marked = with_headers(send, cors_headers(origin)) if origin else send
        try:
            check(self._rules, scope["method"], scope["path"], scope["headers"])
        except RequestRefused as fault:
            self._refused(fault.status)
            await refusal(fault, close=True)(scope, receive, marked)
            return
        if scope["method"] == "OPTIONS":
            await answer_preflight(marked, preflight_headers(scope["headers"]) if origin else [])
            return
        await self._run({**scope, HAS_KEY: has_key(self._rules, scope["headers"])}, receive, marked)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as fault:  # the client has a 500, or the line is closed in the middle of its answer
            frames = "".join(traceback.format_tb(fault.__traceback__))  # not its message, which may hold a prompt
            print(f"error: {type(fault).__name__} in the server:\n{frames}", end="", file=sys.stderr)


def with_headers(send: Send, headers: list[tuple[bytes, bytes]]) -> Send:
    async def marked(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *headers]}
        await send(message)

    return marked


async def answer_preflight(send: Send, headers: list[tuple[bytes, bytes]]) -> None:
    """A browser's question before it asks; without --cors the answer lets no page ask."""
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
