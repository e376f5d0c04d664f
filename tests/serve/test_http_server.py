"""Real sockets on this machine: slow headers, what is no HTTP, a signal, a port that is taken."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from localspec.core.errors import UsageError
from localspec.serve.http_server import Protocol, address_of, allow_files, bind, make_server
from tests.serve.test_answers import SCRIPT, TEXT
from tests.serve.test_queue import slow
from tests.support.asgi_client import PATIENCE
from tests.support.scripted_engine import ScriptedEngine, answer, step
from tests.support.site import Stage, stage


class Hurried(Protocol):
    header_seconds = 0.05


class Unread(Protocol):
    write_seconds = 0.05


class Few(Protocol):
    most_connections = 4
    header_seconds = 1000.0  # so that it is not the time that closes them


class Line:
    """A client's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    async def rest(self) -> bytes:
        """All until the server closes the line."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def until(self, text: bytes) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readuntil(text)


class Listening:
    def __init__(self, world: Stage, protocol: type[Protocol]) -> None:
        self.world, self.bound = world, bind("127.0.0.1", 0)
        self.server = make_server(world.app, world.host.close, protocol)
        self.port = self.bound.getsockname()[1]
        self._lines: list[Line] = []

    async def line(self) -> Line:
        self._lines.append(Line(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self._lines[-1]

    async def hang_up(self) -> None:
        for line in self._lines:
            line.writer.close()
            with suppress(ConnectionError):
                await line.writer.wait_closed()


@asynccontextmanager
async def listening(
    engine: ScriptedEngine | None = None, protocol: type[Protocol] = Protocol
) -> AsyncIterator[Listening]:
    async with stage(engine or ScriptedEngine(SCRIPT, SCRIPT)) as world:
        here = Listening(world, protocol)
        serving = asyncio.create_task(here.server._serve([here.bound]))
        try:
            yield here
        finally:
            await here.hang_up()
            here.server.should_exit = True
            async with asyncio.timeout(PATIENCE):
                await serving
            here.bound.close()


def post(path: str, content: object, *, more: str = "") -> bytes:
    body = json.dumps(content).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


CHAT = {"messages": [{"role": "user", "content": "hi"}]}


async def test_answers_over_one_line_after_another():
    async with listening() as here:
        line = await here.line()
        for _ in range(2):
            await line.send(post("/v1/chat/completions", CHAT))
            head = await line.until(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert b"server:" not in head.lower()
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            assert json.loads(await line.reader.readexactly(length))["choices"][0]["message"]["content"] == TEXT


async def test_a_client_that_hangs_up_stops_the_answer():
    endless = [SCRIPT[0], *SCRIPT[1:-1] * 500, SCRIPT[-1]]
    async with listening(slow(endless)) as here:
        line = await here.line()
        await line.send(post("/v1/chat/completions", {**CHAT, "stream": True}))
        here.world.engine.permit(3)
        await line.until(b"there")
        await here.hang_up()
        await here.world.until(lambda: here.world.queue.answering == 0)


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: "],
    ids=["none", "line", "half"],
)
async def test_a_header_that_does_not_come_is_not_waited_for(sent: bytes):
    async with listening(protocol=Hurried) as here:
        line = await here.line()
        await line.send(sent)
        assert await line.rest() == b""


async def test_the_second_request_of_a_line_has_the_same_time_for_its_header():
    async with listening(protocol=Hurried) as here:
        line = await here.line()
        await line.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await line.until(b'"loaded":true}')
        await line.send(b"GET /health HTTP/1.1\r\nHost: ")
        assert await line.rest() == b""


async def test_an_answer_may_take_longer_than_a_header():
    async with listening(slow(), Hurried) as here:
        line = await here.line()
        await line.send(post("/v1/chat/completions", {**CHAT, "stream": True}))
        await asyncio.sleep(3 * Hurried.header_seconds)
        here.world.engine.permit()
        await line.until(b"data: [DONE]")


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",  # no Host
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.com\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nno length\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\r\n\r\n",  # TLS
    ],
)
async def test_what_is_no_http_is_refused_in_json(sent: bytes):
    async with listening() as here:
        line = await here.line()
        await line.send(sent)
        head, _, body = (await line.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request")
        assert json.loads(body)["error"]["type"] == "invalid_request_error"
        assert here.world.engine.requests == []


async def test_a_header_without_an_end_is_not_kept():
    async with listening() as here:
        line = await here.line()
        await line.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1_000_000)
        assert b"200" not in (await line.rest())[:20]


async def test_rubbish_behind_a_request_is_refused_after_its_answer():
    async with listening(slow()) as here:
        line = await here.line()
        await line.send(post("/v1/chat/completions", {**CHAT, "stream": True}))
        here.world.engine.permit(2)
        await line.until(b"there")
        await line.send(b"rubbish\r\n\r\n" * 3)
        here.world.engine.permit()
        answered, _, refused = (await line.rest()).partition(b"data: [DONE]")
        assert b"HTTP/1.1" not in answered
        assert b"HTTP/1.1 400" in refused


async def test_a_body_with_two_lengths_smuggles_no_second_request():
    """A proxy that believes Content-Length passes all of it on as one request, and here it would be two (CL.TE)."""
    async with listening() as here:
        hidden = post("/v1/chat/completions", CHAT)
        body = b"0\r\n\r\n" + hidden
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        for order in (
            "Content-Length: {}\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: {}",
        ):
            line = await here.line()
            await line.send(f"{head}{order.format(len(body))}\r\n\r\n".encode() + body)
            answered = await line.rest()
            assert answered.startswith(b"HTTP/1.1 400")
            assert answered.count(b"HTTP/1.1") == 1
        assert here.world.engine.requests == []


async def test_silent_lines_keep_nobody_out():
    async with listening(protocol=Few) as here:
        silent = [await here.line() for _ in range(9)]
        line = await here.line()
        await line.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await line.until(b"\r\n")).startswith(b"HTTP/1.1 200")
        assert await silent[0].rest() == b""


async def test_a_line_that_is_answered_is_not_closed_for_new_ones():
    async with listening(slow(), Few) as here:
        line = await here.line()
        await line.send(post("/v1/chat/completions", {**CHAT, "stream": True}))
        here.world.engine.permit(2)
        await line.until(b"there")
        for _ in range(9):
            await here.line()
        here.world.engine.permit()
        await line.until(b"data: [DONE]")


async def test_http_1_0_without_a_host_is_refused():
    async with listening() as here:
        line = await here.line()
        await line.send(b"GET /health HTTP/1.0\r\n\r\n")
        assert (await line.rest()).startswith(b"HTTP/1.1 400")


async def test_a_websocket_is_not_offered():
    async with listening() as here:
        line = await here.line()
        upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        await line.send(
            b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + upgrade + b"Sec-WebSocket-Version: 13\r\n\r\n"
        )
        assert (await line.until(b"\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_body_beyond_the_bound_is_heard_of_by_a_client_that_sends_it_whole():
    async with listening() as here:
        line = await here.line()
        await line.send(post("/v1/chat/completions", "x" * (9 << 20)))
        assert (await line.rest()).startswith(b"HTTP/1.1 413")


async def test_a_body_that_nobody_reads_does_not_cost_the_client_its_answer():
    """The sixth hears 429 whether or not it has sent all, and may ask again over the same line."""
    async with listening(slow()) as here:
        lines = [await here.line() for _ in range(5)]
        for index, line in enumerate(lines):
            await line.send(post("/v1/chat/completions", CHAT))
            await here.world.until(lambda n=index: here.world.queue.answering + here.world.queue.waiting == n + 1)
        sixth = await here.line()
        long = post("/v1/chat/completions", "x" * (1 << 20))
        await sixth.send(long[:1000])
        assert (await sixth.until(b"}}")).startswith(b"HTTP/1.1 429")
        await sixth.send(long[1000:] + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await sixth.until(b"\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_body_that_goes_on_after_its_answer_keeps_no_line():
    async with listening(protocol=Hurried) as here:
        line = await here.line()
        long = post("/nothing", "x" * 1000)
        await line.send(long[:300])
        assert (await line.until(b"}}")).startswith(b"HTTP/1.1 404")
        await line.send(b"x")
        assert await line.rest() == b""


async def test_a_client_that_reads_nothing_is_cut_off_and_its_answer_ends():
    more_than_the_system_takes = answer(*[step("x" * 200_000)] * 100)
    async with listening(ScriptedEngine(more_than_the_system_takes), Unread) as here:
        line = await here.line()
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await line.send(post("/v1/chat/completions", {**CHAT, "stream": True}))
        await here.world.until(lambda: here.world.queue.answering == 1)
        async with asyncio.timeout(PATIENCE):
            while here.server.server_state.connections:
                await asyncio.sleep(0.01)
        await here.world.until(lambda: here.world.queue.answering == 0)


async def test_a_server_that_is_stopped_ends_its_answers_and_itself():
    async with listening(slow()) as here:
        line = await here.line()
        await line.send(post("/v1/chat/completions", {**CHAT, "stream": True}))
        here.world.engine.permit(2)
        await line.until(b"there")
        here.server.should_exit = True
        rest = await line.rest()
        assert b"engine_stopped" in rest
        assert here.world.host.state == "closed"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize(
    ("soft", "hard", "raised"), [(256, 4096, [(1024, 4096)]), (256, 512, [(512, 512)]), (2048, 4096, [])]
)
def test_the_limit_of_open_files_is_raised_where_it_is_low(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: list[tuple[int, int]]
):
    """macOS allows 256 at first, which is not enough for as many connections."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr("resource.getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr("resource.setrlimit", lambda _, limits: found.append(limits))
    allow_files()
    assert found == raised


def test_a_port_that_is_taken_is_a_sentence():
    with bind("127.0.0.1", 0) as bound:
        with pytest.raises(UsageError, match="Cannot listen on port") as caught:
            bind("127.0.0.1", bound.getsockname()[1])
        assert "--port" in caught.value.hint
        assert address_of(bound) == f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize(("host", "reached"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
def test_a_socket_of_every_address_is_announced_where_this_machine_reaches_it(host: str, reached: str):
    try:
        bound = bind(host, 0)
    except UsageError:
        pytest.skip(f"no {host} here")
    with bound:
        assert address_of(bound) == f"http://{reached}:{bound.getsockname()[1]}"


def test_an_address_of_another_machine_is_a_sentence():
    with pytest.raises(UsageError):
        bind("192.0.2.1", 0)
    with pytest.raises(UsageError, match="is not an address"):
        bind("no such name", 0)


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_an_ipv6_address_has_brackets():
    try:
        bound = bind("::1", 0)
    except UsageError:
        pytest.skip("no IPv6 on the loopback")
    with bound:
        assert address_of(bound).startswith("http://[::1]:")
