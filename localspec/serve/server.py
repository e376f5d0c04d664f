"""A server from start to end: the socket, the engine, the file that `ps` reads. Knows no command line."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from time import time
from typing import Any  # Any: fields of a record

from msgspec.structs import replace
from starlette.applications import Starlette

from localspec.core.errors import UsageError, error_of
from localspec.core.events import AnyEvent, Failure, Notice, SpecCard
from localspec.serve import registry
from localspec.serve.app import Served, Site, make_app
from localspec.serve.engine import Host, ServedEngine
from localspec.serve.http_server import Server, address_of, allow_files, bind, make_server
from localspec.serve.queue import Queue
from localspec.serve.registry import Running
from localspec.serve.security import LOCAL_NAMES, AccessRules, host_name, is_host, is_loopback, is_wildcard

PORT = 11535
STOPPING = Notice("info", "stopping", "The server is stopped.")
NOTED_EVERY = 0.2  # seconds, at most


@dataclass(frozen=True, slots=True)
class BindAddress:
    host: str = "127.0.0.1"
    port: int = PORT


def rules_of(address: BindAddress, hosts: tuple[str, ...], origins: tuple[str, ...], key: str | None) -> AccessRules:
    """The rules that were asked for; UsageError where others could reach the server without a key."""
    if not is_host(address.host):
        raise UsageError(f"'{address.host[:100]}' is not an address.", hint="Use --host 127.0.0.1.")
    check_reach(address.host, key)
    names = {host_name(host) for host in hosts}
    if "" in names:
        raise UsageError("--allow-host takes a name such as box.local.", hint="Give it without http:// and path.")
    for origin in origins:
        if origin in ("*", "null") or "://" not in origin or origin.count("/") != 2:
            raise UsageError(f"'{origin[:100]}' is not an origin.", hint="Give one as http://localhost:3000.")
    own = set() if is_wildcard(address.host) else {host_name(bracketed(address.host))}
    return AccessRules(frozenset(names | own) - LOCAL_NAMES - {""}, frozenset(map(str.lower, origins)), key)


def reached_at(rules: AccessRules, address: str) -> AccessRules:
    """The rules for a server that is announced with this address, which is then a host of its own."""
    name = host_name(re.sub("%[^]]*", "", address.removeprefix("http://")))  # clients send no zone of an IPv6 address
    return dataclasses.replace(rules, hosts=(rules.hosts | {name}) - LOCAL_NAMES)


def check_reach(host: str, key: str | None) -> None:
    if key is None and not is_loopback(host):
        raise UsageError(
            f"Other machines could reach {host}, so clients need a key.",
            hint="Set LOCALSPEC_API_KEY, or give --key-file FILE.",
        )


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Noting:
    """Writes what runs into its file, when it has changed, and not more often than need be."""

    def __init__(self, server: Running) -> None:
        self._server = server
        self._changed = asyncio.Event()

    def change(self, host: Host, queue: Queue) -> None:
        counts = {"answering": queue.answering, "waiting": queue.waiting}
        self._server = replace(self._server, state=host.state, until=host.until, **loaded(host), **counts)
        self._changed.set()

    async def keep(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await asyncio.to_thread(registry.write, self._server)
            await asyncio.sleep(NOTED_EVERY)


def loaded(host: Host) -> dict[str, Any]:
    """What `ps` says of the model; of one that was unloaded, too, but for the memory that it takes."""
    if host.ready is None:
        return {}
    card, memory = host.ready.model, host.ready.memory
    taken = memory.target_bytes + memory.drafter_bytes + memory.kv_bytes if host.state == "ready" else 0
    known = {"quant": card.quant, "device": card.device, "context": card.context_max, "num_bytes": taken}
    return {**known, "speculation": speculation_words(host.ready.spec)}


def speculation_words(spec: SpecCard) -> str:
    if spec.switch == "off":
        return "off"
    length = "" if spec.k == "auto" else f", k {spec.k}"
    return f"{spec.name or spec.kind} ({spec.switch}{length})"


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served: `make` makes an engine for every load, and `ttl` seconds without a request unload it."""

    make: Callable[[], ServedEngine]
    served: Served
    rules: AccessRules
    ttl: float | None = None


def serve(
    serving: Serving,
    address: BindAddress,
    listening: Callable[[str], object],
    seen: Callable[[AnyEvent], object] = lambda _: None,
) -> None:
    """Serves until a signal ends it; the error of a model that could not be loaded at first is raised. `listening` is
    called with the address, `seen` with every event of loading."""
    bound = bind(address.host, address.port)
    try:
        allow_files()
        check_reach(bound.getsockname()[0], serving.rules.key)  # a name may be of an address that is not this machine's
        failure = asyncio.run(run(serving, bound, listening, seen))
    finally:
        bound.close()
        registry.remove(os.getpid())
    if failure is not None:
        raise error_of(failure.code, failure.message, hint=failure.hint)


async def run(
    serving: Serving, bound: socket.socket, listening: Callable[[str], object], seen: Callable[[AnyEvent], object]
) -> Failure | None:
    """Serves on this socket; returns why the model could not be loaded, if that ended it."""
    failures: list[Failure] = []
    shown = address_of(bound)
    noting = Noting(Running(os.getpid(), registry.own_start(), shown, serving.served.name, time()))

    def failed(failure: Failure) -> None:
        failures.append(failure)
        server.should_exit = True

    def changed() -> None:
        noting.change(host, queue)

    host = Host(serving.make, ttl=serving.ttl, changed=changed, failed=failed, seen=seen)
    queue = Queue(changed, lambda: host.parallel)
    rules = reached_at(serving.rules, shown)
    app = make_app(Site(serving.served, host, queue), rules, lifespan_of(host, noting))

    def end() -> None:
        if not failures:
            seen(STOPPING)
        host.close()

    server: Server = make_server(app, end)
    listening(shown)
    await server.serve([bound])
    return failures[0] if failures else None


def lifespan_of(host: Host, noting: Noting) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        keeping = asyncio.create_task(noting.keep())
        host.start()
        try:
            yield
        finally:
            host.close()
            keeping.cancel()

    return lifespan
