"""Sockets, and HTTP over them by uvicorn: a client that sends its header or reads its answer too slowly is cut off, and
a signal ends all.

Knows no route and no model.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any  # Any: uvicorn's own arguments

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from localspec.core.errors import UsageError
from localspec.serve.faults import RequestRefused
from localspec.serve.replies import ENCODE

HEADER_SECONDS = 10.0
WRITE_SECONDS = 30.0
MOST_CONNECTIONS = 256
BACKLOG = 128  # connections that are accepted at a time
MOST_FILES = 1024  # open at a time: more than connections take, where the system lets a program have fewer at first
GRACE_SECONDS = 3  # that answers have to end in, when the server is stopped
CLOSES = (b"connection", b"close")
LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}
NOT_HTTP = RequestRefused(400, "This is not an HTTP request.", code="not_http")


class Protocol(H11Protocol):
    """HTTP/1.1, whose header must be there within `header_seconds` of its first byte, and whose client must take what
    is written within `write_seconds`: one that does not would hold its answer for ever."""

    header_seconds = HEADER_SECONDS
    write_seconds = WRITE_SECONDS
    most_connections = MOST_CONNECTIONS
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that all that the system does not take is known of
        self._watch_header()
        self._make_way()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_header()

    def pause_writing(self) -> None:
        self._unread = self.loop.call_later(self.write_seconds, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stop_waiting()
        super().resume_writing()

    def _stop_waiting(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._unwatch()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the library's words are not ours
        """Says that it was not HTTP, if nothing was sent yet, and closes the line."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = ENCODE(NOT_HTTP.body)
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            start = h11.Response(status_code=400, headers=[*headers, CLOSES], reason=b"Bad Request")
            for event in (start, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _make_way(self) -> None:
        """Closes the line that has sent no header for longest, where there are too many: silent ones keep none out."""
        lines = [one for one in self.connections if isinstance(one, Protocol) and not one.transport.is_closing()]
        waiting = {one: one._deadline.when() for one in lines if one._deadline is not None}
        if len(lines) > self.most_connections and waiting:
            min(waiting, key=waiting.__getitem__).transport.close()

    def _watch_header(self) -> None:
        """Watches a body after its answer too: what still comes of it is dropped until the next header."""
        is_dropped = (self.conn.our_state, self.conn.their_state) == (h11.DONE, h11.SEND_BODY)
        if self.conn.their_state is not h11.IDLE and not is_dropped:
            self._unwatch()
        elif self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.header_seconds, self.transport.close)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class Server(uvicorn.Server):
    """`ending` is called when the server was asked to stop, before it waits for what is under way."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], object]) -> None:
        super().__init__(config)
        self._ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal stops the server and is then done with: it does not end the program a second time."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, action in before.items():
                signal.signal(number, action)


def make_server(app: ASGIApp, ending: Callable[[], object], protocol: type[asyncio.Protocol] = Protocol) -> Server:
    settings: dict[str, Any] = {
        "http": protocol,
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "log_level": "critical",
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "backlog": BACKLOG,
        "timeout_graceful_shutdown": GRACE_SECONDS,
    }
    return Server(uvicorn.Config(app, **settings), ending)


def allow_files() -> None:
    """Raises this process's limit of open files, as far as its user may: connections count as files."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there; UsageError where it cannot."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as fault:
        raise UsageError(
            f"'{host}' is not an address of this machine ({fault.strerror}).", hint="Use --host 127.0.0.1."
        ) from fault
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as fault:
        bound.close()
        reason = f"Cannot listen on port {port} of {host} ({fault.strerror})."
        raise UsageError(reason, hint="See what is running: localspec ps. Or choose another: --port N") from fault
    bound.setblocking(False)
    return bound


def address_of(bound: socket.socket) -> str:
    """The address by which this machine reaches it: for a socket of every address, the loopback's."""
    host, port = bound.getsockname()[:2]
    host = LOOPBACK_OF.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
