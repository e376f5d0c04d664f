"""Bytes that are no HTTP, or HTTP that two programs would read in two ways."""

from __future__ import annotations

import json
from random import Random

from tests.support.hostile.request import CHAT, TEXT, Attack, fields, request

BROKEN = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS client says hello
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /\r\n\r\n",
    b"GET  / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"G@T / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\rb: c\r\n\r\n",
    b"GET / HTTP/1.1\r\n Host: 127.0.0.1\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"\r\n\r\n\r\n\r\nhello\r\n\r\n",
    b"*1\r\n$4\r\nPING\r\n",  # Redis
    b"SSH-2.0-OpenSSH_9.2\r\n",
)
LENGTHS = ("-1", "+5", "5 5", "0x10", "abc", "1e3", "5, 6", "9" * 30, "", "\xb2")
CHUNKS = (
    b"zz\r\n",
    b"-1\r\nx\r\n",
    b"FFFFFFFFFFFFFFFFFFFFFFFFFF\r\n",
    b"5\r\nabc",
    b"5;" + b"x" * 70_000,
    b"3\r\nabcd\r\n0\r\n\r\n",
)


def broken(random: Random) -> Attack:
    return Attack("broken", random.choice(BROKEN), may_close=True, is_cut=True)


def noise(random: Random) -> Attack:
    return Attack("noise", random.randbytes(random.randint(1, 4096)), may_close=True, is_cut=True)


def cut(random: Random) -> Attack:
    whole = request("POST", random.choice((CHAT, TEXT)), json.dumps(fields()).encode())
    return Attack("cut", whole[: random.randrange(1, len(whole))], may_close=True, is_cut=True)


def changed_bytes(random: Random) -> Attack:
    """The bytes of a request's head, some of them replaced."""
    head = bytearray(request("GET", "/nothing-here"))
    for _ in range(random.randint(1, 4)):
        head[random.randrange(len(head))] = random.choice(b"\x00\x01\r\n :\x7f\x80\xff/?#@[]")
    return Attack("changed bytes", bytes(head), may_close=True, is_cut=True)


def long_head(random: Random) -> Attack:
    long = "x" * random.choice((300_000, 600_000))
    found = random.choice(
        (request("GET", f"/{long}"), request("GET", "/health", X_Long=long), request("GET", "/health", Host=long))
    )
    return Attack("long head", found, may_close=True)


def many_headers(random: Random) -> Attack:
    many = "".join(f"X-{number}: y\r\n" for number in range(random.choice((5_000, 20_000))))
    return Attack("many headers", f"GET /health HTTP/1.1\r\n{many}".encode(), may_close=True, is_cut=True)


def bad_length(random: Random) -> Attack:
    content = request("POST", TEXT, b"{}", Content_Length=random.choice(LENGTHS))
    return Attack("bad length", content, may_close=True, is_cut=True)


def two_lengths(random: Random) -> Attack:
    body = json.dumps(fields()).encode()
    second = random.choice(
        (f"Content-Length: {len(body) + 40}", "Transfer-Encoding: gzip", "Transfer-Encoding: identity")
    )
    content = request("POST", TEXT, body).replace(b"Content-Type", f"{second}\r\nContent-Type".encode())
    return Attack("two lengths", content, may_close=True, is_cut=True)


def smuggled(random: Random) -> Attack:
    """A second request in the body of the first, which two servers in a row would measure differently."""
    inner = request("POST", TEXT, json.dumps(fields()).encode())
    content = request(
        "POST", TEXT, b"0\r\n\r\n" + inner, Transfer_Encoding=random.choice(("chunked", "xchunked", "chunked, x"))
    )
    return Attack("smuggled", content, may_close=True, is_cut=True)


def bad_chunks(random: Random) -> Attack:
    head = request("POST", random.choice((CHAT, TEXT)), Content_Length=None, Transfer_Encoding="chunked")
    return Attack("bad chunks", head + random.choice(CHUNKS), may_close=True, is_cut=True)


def upgrade(random: Random) -> Attack:
    asked = {"Connection": "Upgrade", "Upgrade": random.choice(("websocket", "h2c")), "Sec_WebSocket_Key": "AAAA"}
    return Attack("upgrade", request("GET", random.choice((CHAT, "/", "/v1")), **asked))
