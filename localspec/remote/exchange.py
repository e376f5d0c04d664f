"""One HTTP request and its answer, read a line at a time: bounded, under deadlines, and stopped from another thread.

Follows no redirect, reads no proxy from the environment and sends a key to its own address only. Knows no protocol
above HTTP.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Self

from localspec.core.version import __version__
from localspec.remote import faults
from localspec.remote.address import Address

MOST_LINE = 1 << 20  # bytes; a token's line has hundreds
MOST_STREAM = 64 << 20
MOST_FAULT = 64 << 10
PIECE = 64 << 10
NO_HEADERS: Mapping[str, str] = {}
BROKEN = (OSError, HTTPException, ValueError)  # ValueError: read from a socket that another thread has shut


@dataclass(frozen=True, slots=True)
class ServerTimeouts:
    """Seconds until there is a connection, for a whole short answer, and of silence in a long one, which may be that of
    a long prompt being read."""

    connect: float = 10.0
    short: float = 10.0
    silence: float = 600.0


DEADLINES = ServerTimeouts()


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """A server's address and its key, "" for none; `key_env` is where the key is from."""

    address: Address
    key: str = ""
    key_env: str = ""

    @property
    def name(self) -> str:
        """The server, in messages."""
        return self.address.url


class HttpExchange:
    """`within`: seconds for all of it; None: only silence ends it. `status`: of the answer, 0 before it has come. To be
    entered with `with`."""

    def __init__(
        self, access: ServerAccess, deadlines: ServerTimeouts = DEADLINES, *, within: float | None = None
    ) -> None:
        self.access, self.deadlines, self.within = access, deadlines, within
        self.stopped = self.expired = False
        self.status = 0
        self._socket: socket.socket | None = None
        self._connection: HTTPConnection | None = None
        self._timer: threading.Timer | None = None
        self._woken = threading.Event()  # it is connected, or never will be, or was stopped

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.close()

    def stop(self) -> None:
        """Ends it from any thread: whoever reads sees the end. Twice does no harm."""
        self.stopped = True
        self._woken.set()
        if (open_socket := self._socket) is not None:
            with suppress(OSError):
                # Of the plain socket: to end TLS itself would take from the reader what it reads with.
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)

    def _expire(self) -> None:
        self.expired = True
        self.stop()

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        also: int = 200,
    ) -> HTTPResponse:
        """Sends the request; the answer, once its headers have come. Anything but 200, and `also`, is an error."""
        self._connect()
        connection = self._connection
        assert connection is not None
        try:
            own = self._headers(body is not None)
            connection.request(method, self.access.address.path + path, body, {**headers, **own})
            response = connection.getresponse()
        except BROKEN as fault:
            raise self._lost(fault) from fault
        self.status = response.status
        if response.status not in (200, also):
            raise self._refused(response)
        return response

    def _connect(self) -> None:
        """Connects in a thread of its own, which is left alone with it when it is stopped: neither the search for a
        name nor a handshake can be interrupted."""
        connection, connected = connection_to(self.access.address, self.deadlines.connect), Future[None]()
        connected.add_done_callback(lambda _: self._woken.set())
        threading.Thread(target=settle, args=(connected, connection.connect), name="connect", daemon=True).start()
        self._woken.wait(self.deadlines.connect)
        if self.stopped or not connected.done():
            connected.add_done_callback(lambda _: connection.close())
            raise faults.unreachable(self.access.name, TimeoutError())
        try:
            connected.result()
        except OSError as fault:
            raise faults.unreachable(self.access.name, fault) from fault
        except (HTTPException, ValueError) as fault:
            raise faults.lost(self.access.name, fault) from fault
        self._connection, self._socket = connection, connection.sock
        self._watch(connection.sock)

    def _watch(self, connected: socket.socket) -> None:
        """The deadlines from now on."""
        connected.settimeout(self.deadlines.silence if self.within is None else self.within)
        if self.within is not None:
            self._timer = threading.Timer(self.within, self._expire)
            self._timer.daemon = True
            self._timer.start()
        if self.stopped:  # meanwhile
            self.stop()

    def _headers(self, has_body: bool) -> Mapping[str, str]:
        headers = {"User-Agent": f"localspec/{__version__}", "Accept-Encoding": "identity", "Connection": "close"}
        if has_body:
            headers["Content-Type"] = "application/json"
        if self.access.key:
            headers["Authorization"] = f"Bearer {self.access.key}"
        return headers

    def _lost(self, fault: OSError | HTTPException | ValueError) -> Exception:
        return faults.lost(self.access.name, TimeoutError() if self.expired else fault)

    def _refused(self, response: HTTPResponse) -> Exception:
        name = self.access.name
        if 300 <= response.status < 400:
            return faults.moved(name, response.getheader("Location", ""))
        try:
            body = response.read(MOST_FAULT)
        except BROKEN:
            body = b""
        after = response.getheader("Retry-After", "").strip()
        hint = faults.CHECK if self.within is not None else faults.look(name)
        return faults.refused(name, response.status, body, hint=hint, retry_after=after, key_env=self.access.key_env)

    def whole(self, response: HTTPResponse, most: int) -> bytes:
        """All of a short answer."""
        try:
            found = response.read(most + 1)
        except BROKEN as fault:
            raise self._lost(fault) from fault
        if self.expired:
            raise self._lost(TimeoutError())
        if len(found) > most:
            raise faults.too_large(self.access.name, "an answer")
        return found

    def lines(self, response: HTTPResponse) -> Iterator[bytes]:
        """The lines of a stream as they come, without their ends. What stands after the last end is no line."""
        buffer, total, waiting = b"", 0, True
        while waiting:
            piece = self._piece(response)
            total += len(piece)
            buffer += piece
            *whole, buffer = buffer.split(b"\n")
            if len(buffer) > MOST_LINE or any(len(line) > MOST_LINE for line in whole):
                raise faults.too_large(self.access.name, "a line")
            if total > MOST_STREAM:
                raise faults.too_large(self.access.name, "an answer")
            for line in whole:
                yield line.removesuffix(b"\r")
            waiting = bool(piece)

    def _piece(self, response: HTTPResponse) -> bytes:
        """What has arrived; nothing at the end."""
        try:
            return response.read1(PIECE)
        except IncompleteRead:
            return b""  # the reader knows whether the answer was whole
        except BROKEN as fault:
            if self.stopped and not self.expired:
                return b""
            raise self._lost(fault) from fault
        except AttributeError:  # http.client has closed its file meanwhile
            return b""


def connection_to(address: Address, seconds: float) -> HTTPConnection:
    """A connection that is not made yet."""
    if address.scheme == "http":
        return HTTPConnection(address.host, address.port, timeout=seconds)
    return HTTPSConnection(address.host, address.port, timeout=seconds, context=ssl.create_default_context())


def settle(future: Future[None], call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as fault:  # whoever waits for it raises it
        future.set_exception(fault)
    else:
        future.set_result(None)
