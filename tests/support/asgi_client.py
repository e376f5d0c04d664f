"""A client of an ASGI application in the same loop: it sees each line as it is sent, and may leave at any time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Message

JSON = ("content-type", "application/json")
HOST = ("host", "127.0.0.1:11535")
PATIENCE = 10.0  # seconds, before a test that waits for ever fails


class Call:
    """One request under way. `headers` replace the usual ones of the same name; None leaves one out."""

    def __init__(
        self,
        app: ASGIApp,
        method: str,
        path: str,
        content: Any = None,
        *,
        headers: Iterable[tuple[str, str]] = (),
        without: tuple[str, ...] = (),
        parts: Iterable[bytes] | None = None,
    ) -> None:
        own = list(headers)
        named = {name for name, _ in own} | set(without)
        usual = [HOST, *([JSON] if method == "POST" else [])]
        self._headers = [*(pair for pair in usual if pair[0] not in named), *own]
        body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        self._parts = list(parts) if parts is not None else [body]
        self._left, self._moved = asyncio.Event(), asyncio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self._task = asyncio.create_task(self._run(app, method, path))

    async def _run(self, app: ASGIApp, method: str, path: str) -> None:
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "scheme": "http",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in self._headers],
            "server": ("127.0.0.1", 11535),
            "client": ("127.0.0.1", 1),
            "state": {},
        }
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._moved.set()

    async def _receive(self) -> Message:
        if self._parts:
            body = self._parts.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(self._parts)}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")
        self._moved.set()

    def leave(self) -> None:
        """The client closes the connection."""
        self._left.set()

    async def sees(self, text: str) -> None:
        """Waits until this was sent."""
        async with asyncio.timeout(PATIENCE):
            while text not in self.body.decode():
                assert not self._task.done(), f"ended without {text!r}: {self.status} {self.body!r}"
                self._moved.clear()
                await self._moved.wait()

    async def end(self) -> Call:
        async with asyncio.timeout(PATIENCE):
            await self._task
        return self

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json["error"]
        return found

    @property
    def events(self) -> list[Any]:
        """The data of the stream's events; [DONE] as it is."""
        lines = [line.removeprefix("data: ") for line in self.body.decode().split("\n\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    @property
    def comments(self) -> list[str]:
        return [line[2:] for line in self.body.decode().split("\n\n") if line.startswith(": ")]

    @property
    def text(self) -> str:
        """The text of a stream of chat chunks."""
        choices = [choice for event in self.events if event != "[DONE]" for choice in event.get("choices", [])]
        return "".join(choice["delta"].get("content", "") for choice in choices)
