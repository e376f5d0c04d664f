"""A server on 127.0.0.1 that plays what it was given: bodies by path, a stream for each question, faults on request.

It is no server's code: whatever it answers stands in tests/support/recorded_servers.py or in the test.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """`pieces` are sent one by one; `gate` is waited for before the piece of that number. `cut`: the connection ends
    without the end of its chunks. `length`: a Content-Length to claim."""

    pieces: Iterable[bytes] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    length: int | None = None
    gate: tuple[int, threading.Event] | None = None

    @classmethod
    def json(cls, found: object, status: int = 200, **headers: str) -> Answer:
        body = json.dumps(found).encode()
        return cls([body], status, "application/json", headers, length=len(body))

    @classmethod
    def text(cls, text: str) -> Answer:
        return cls([text.encode()], 200, "text/plain", length=len(text.encode()))


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any = None


Route = Answer | Callable[[], Answer] | list[Answer]


@dataclass
class StandIn:
    """`routes`: an answer by "GET /path", several in turn. `gone`: a client has left while it was written to."""

    url: str
    port: int
    routes: dict[str, Route]
    asked: list[Asked] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)

    def answer(self, name: str) -> Answer:
        route = self.routes.get(name)
        match route:
            case None:
                return Answer.json({"error": {"message": f"no route {name}"}}, 404)
            case Answer():
                return route
            case list():
                return route.pop(0) if len(route) > 1 else route[0]
        return route()

    @property
    def questions(self) -> list[Asked]:
        return [one for one in self.asked if one.method == "POST"]


@contextmanager
def stand_in(routes: dict[str, Route]) -> Iterator[StandIn]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.play()

        def do_POST(self) -> None:
            self.play()

        def play(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            server.asked.append(Asked(self.command, self.path, dict(self.headers), body))
            try:
                self.send(server.answer(f"{self.command} {self.path}"))
            except OSError:
                server.gone.set()
            self.close_connection = True

        def send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for name, value in {"Content-Type": answer.content_type, **answer.headers}.items():
                self.send_header(name, value)
            is_chunked = answer.length is None
            self.send_header(
                *(("Transfer-Encoding", "chunked") if is_chunked else ("Content-Length", str(answer.length)))
            )
            self.end_headers()
            for number, piece in enumerate(answer.pieces):
                if answer.gate is not None and answer.gate[0] == number:
                    answer.gate[1].wait(30)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece)
                self.wfile.flush()
            if is_chunked and not answer.cut:
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    port = listening.server_address[1]
    server = StandIn(f"http://127.0.0.1:{port}", port, routes)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
