"""The two servers of a fake hub: they write answers to the line, and break it where a switch says so."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.client import responses
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.support.fake_hub.repository import FakeFile
from tests.support.fake_hub.routes import Asked, changed, ranged
from tests.support.fake_hub.switches import Answer, Drip, Switches

if TYPE_CHECKING:
    from tests.support.fake_hub import FakeHub


@dataclass
class Exchange:
    """A request and how far its answer is; the log shows it as a frozen record."""

    asked: Asked
    status: int = 0  # not answered
    sent_bytes: int = 0


class Server(ThreadingHTTPServer):
    """A server that ends with all its threads, whoever still waits."""

    daemon_threads = False  # server_close waits for them
    request_queue_size = 128

    def __init__(self, hub: FakeHub, name: str, port: int) -> None:
        self.hub, self.name = hub, name
        self.lines: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), Reply)
        self.thread = threading.Thread(target=self.serve_forever, args=[0.02], daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        """Its address. The CDN has another host's name, as on the real hub: huggingface_hub 1.x compares no ports."""
        return f"http://{'localhost' if self.name == 'cdn' else '127.0.0.1'}:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        self.lines.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.lines.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A client that goes away is no fault; anything else is one of ours, and fails the test."""
        fault = sys.exception()
        if not isinstance(fault, OSError):
            self.hub.faults.append(fault)

    def stop(self) -> None:
        self.shutdown()
        self.thread.join()
        for line in list(self.lines):
            try:
                line.shutdown(socket.SHUT_RDWR)
            except OSError:  # it ended by itself
                continue
        self.server_close()


class Reply(BaseHTTPRequestHandler):
    """Answers the requests of one line."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """The hub keeps a log of its own."""

    def do_GET(self) -> None:
        hub, headers = self.server.hub, {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.server.name, self.command, self.path, headers)
        exchange = hub.begin(asked)
        self.close_connection |= self.command not in ("GET", "HEAD")  # a body that was sent stays unread
        answer = hub.answer(asked)
        if answer.file is None:
            self._begin(exchange, answer, len(answer.body))
            if self.command != "HEAD":
                self._send(exchange, answer.body)
        else:
            self._send_file(exchange, answer, answer.file)

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

    def _begin(self, exchange: Exchange, answer: Answer, length: int) -> None:
        """Status line and headers, unchecked: a hub may send anything."""
        exchange.status = answer.status
        headers = {**answer.headers, "Content-Length": str(length)}
        if self.close_connection:
            headers["Connection"] = "close"
        lines = [f"HTTP/1.1 {answer.status} {responses.get(answer.status, '')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.wfile.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())

    def _send(self, exchange: Exchange, piece: bytes) -> None:
        if piece:
            exchange.sent_bytes += len(piece)  # counted first: whoever has read them finds them in the log
            self.wfile.write(piece)

    def _send_file(self, exchange: Exchange, answer: Answer, file: FakeFile) -> None:
        asked, switches = exchange.asked, self._switches(exchange.asked, file)
        if switches.ignore_range:
            asked = replace(asked, headers={})
        answer, part = ranged(asked, answer)
        self.close_connection |= bool(switches.length_off_by)
        if self.command == "HEAD" or not part:
            self._begin(exchange, answer, len(part))
            return
        self._begin(exchange, answer, len(part) + switches.length_off_by)
        for piece in self._body(file, part, switches):
            self._send(exchange, piece)

    def _switches(self, asked: Asked, file: FakeFile) -> Switches:
        """Those that concern this file's body; small files, which the hub sends itself, arrive as they are."""
        switches = self.server.hub.switches
        concerned = asked.server == "cdn" and switches.only in (None, file.path)
        return switches if concerned else Switches()

    def _body(self, file: FakeFile, part: range, switches: Switches) -> Iterator[bytes]:
        """The bytes as the switches leave them; ends early where the line breaks."""
        hub, pieces = self.server.hub, file.pieces(part.start, part.stop)
        if (flip := switches.flip) and flip.at % file.size in part and hub.spend(flip):
            pieces = changed(pieces, part.start, flip.at % file.size)
        cut = switches.cut
        breaks = cut is not None and cut.after < len(part) and hub.spend(cut)
        end = cut.after if cut and breaks else len(part)
        held, sent = switches.hold_after, 0
        for piece in self._paced(pieces, switches.drip):
            kept = piece[: end - sent]
            if held is not None and 0 <= held - sent < len(kept):
                yield kept[: held - sent]
                hub.stall()
                yield kept[held - sent :]
            else:
                yield kept
            sent += len(kept)
            if sent == end:
                break
        self.close_connection |= breaks

    def _paced(self, pieces: Iterator[bytes], drip: Drip | None) -> Iterator[bytes]:
        """The pieces, with a wait after so many bytes each."""
        if drip is None:
            yield from pieces
            return
        left = drip.piece
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                yield bytes(rest[:left])
                left, rest = left - len(rest[:left]), rest[left:]
                if not left:
                    self.server.hub.closing.wait(drip.seconds)
                    left = drip.piece
