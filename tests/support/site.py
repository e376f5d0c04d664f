"""A server without sockets and without a model: scripted engines behind the real host, queue, routes and guard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from localspec.core.events import AnyEvent, Failure, Notice
from localspec.remote.kinds import KINDS
from localspec.serve.app import Served, Site, make_app
from localspec.serve.engine import Host, State
from localspec.serve.queue import Queue
from localspec.serve.security import AccessRules
from tests.support.asgi_client import PATIENCE, Call
from tests.support.scripted_engine import ScriptedEngine

ANYONE = AccessRules()


class Stage:
    """`engines` are made in turn, one for every load; `world.engine` is the latest."""

    def __init__(
        self,
        *engines: ScriptedEngine,
        rules: AccessRules = ANYONE,
        ttl: float | None = None,
        served: Served = Served("guide"),  # noqa: B008 - frozen
        **more: Any,
    ) -> None:
        self._engines = list(engines)
        self.made: list[ScriptedEngine] = []
        self.failures: list[Failure] = []
        self.changes = asyncio.Event()
        self.said: list[AnyEvent] = []
        self.host = Host(
            self._make, ttl=ttl, changed=self.changes.set, failed=self.failures.append, seen=self.said.append
        )
        self.queue = Queue(self.changes.set, lambda: self.host.parallel)
        self.site = Site(served, self.host, self.queue, **more)
        self.app = make_app(self.site, rules)

    def _make(self) -> ScriptedEngine:
        self.made.append(self._engines.pop(0))
        return self.made[-1]

    @property
    def told(self) -> list[str]:
        """The codes of what the server's terminal says."""
        return [event.code for event in self.said if isinstance(event, Notice)]

    @property
    def engine(self) -> ScriptedEngine:
        return self.made[-1]

    def get(self, path: str, **more: Any) -> Call:
        return Call(self.app, "GET", path, **more)

    def post(self, path: str, content: Any = None, **more: Any) -> Call:
        return Call(self.app, "POST", path, content, **more)

    def chat(self, text: str = "hi", *, ahead: bool = False, **fields: Any) -> Call:
        """`ahead`: as a localspec chat asks."""
        content = {"messages": [{"role": "user", "content": text}], **fields}
        headers = [(name.lower(), value) for name, value in KINDS["localspec"].headers.items()] if ahead else []
        return self.post("/v1/chat/completions", content, headers=headers)

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not reached():
                self.changes.clear()
                await self.changes.wait()

    async def enters(self, state: State) -> None:
        await self.until(lambda: self.host.state == state)


@asynccontextmanager
async def stage(*engines: ScriptedEngine, loaded: bool = True, **more: Any) -> AsyncIterator[Stage]:
    """A server whose first engine is loaded."""
    world = Stage(*engines, **more)
    world.host.start()
    if loaded:
        await world.enters("ready")
    try:
        yield world
    finally:
        for engine in world.made:
            engine.permit()
        world.host.close()


@asynccontextmanager
async def answering(*scripts: Sequence[AnyEvent], **more: Any) -> AsyncIterator[Stage]:
    """A server with one engine that plays these scripts."""
    async with stage(ScriptedEngine(*scripts), **more) as world:
        yield world
