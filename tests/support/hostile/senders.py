"""Requests of those who may not ask: hosts, origins and kinds of body that only look right."""

from __future__ import annotations

import json
from random import Random

from tests.support.hostile.request import CHAT, TEXT, Attack, fields, request

HOSTS = (
    "evil.com", "localhost.evil.com", "127.0.0.1.evil.com:11535", "evil.com:11535", "localhost@evil.com",
    "127.0.0.1:x", "evil-localhost", "localhost..", "127.0.0.1:", "127.0.0.2", "0.0.0.0", "[::]", "::1", "[::1",
    "2130706433", "127.1", "0x7f000001", "localhost:99999999", "localhost/../", "localhost evil.com",
    "localhost,evil.com", "metadata.google.internal", "[::ffff:127.0.0.1]", "127.0.0.1%00.evil.com",
    "xn--localhost-", "", ".", "*", "http://localhost", "[::1]evil.com",
)  # fmt: skip
ORIGINS = (
    "http://evil.com", "null", "https://localhost.evil.com", "http://127.0.0.1.evil.com", "http://localhost:3000",
    "", "http://127.0.0.1@evil.com", "file://", "chrome-extension://abc", "http://127.0.0.1 http://evil.com", "*",
    "NULL", "moz-extension://x", "http://127.0.0.1:1", "https://127.0.0.1:8443", "data:", "http://[::1]",
)  # fmt: skip
TYPES = (
    "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx",
    "json", "", "text/plain; application/json", "application/json, text/plain", "application/ld+json", "text/json",
    "*/*", "application/octet-stream", "application/json/", None,
)  # fmt: skip


def wrong_host(random: Random) -> Attack:
    path = random.choice((TEXT, CHAT, "/v1/models", "/health", "/metrics"))
    method = "POST" if path in (TEXT, CHAT) else "GET"
    body = json.dumps(fields()).encode() if method == "POST" else b""
    return Attack("wrong host", request(method, path, body, Host=random.choice(HOSTS)))


def absolute_target(random: Random) -> Attack:
    """As proxies are asked; the Host beside it is ours."""
    return Attack(
        "absolute target", request("GET", random.choice(("http://evil.com/", "http://169.254.169.254/latest")))
    )


def two_hosts(random: Random) -> Attack:
    hosts = ["127.0.0.1", random.choice(("evil.com", "127.0.0.1", "localhost", ""))]
    random.shuffle(hosts)
    found = request("GET", "/v1/models").replace(
        b"Host: 127.0.0.1", "\r\n".join(f"Host: {host}" for host in hosts).encode()
    )
    return Attack("two hosts", found, may_close=True)


def no_host(random: Random) -> Attack:
    body = json.dumps(fields()).encode()
    old = request("POST", TEXT, body, Host=None).replace(b"HTTP/1.1", random.choice((b"HTTP/1.1", b"HTTP/1.0")))
    return Attack("no host", old, may_close=True)


def forwarded(random: Random) -> Attack:
    """Headers of proxies that say that all is well."""
    kind = random.choice(("X_Forwarded_Host", "X_Forwarded_For", "Forwarded", "X_Host", "X_Original_Host", "X_Real_IP"))
    return Attack("forwarded", request("GET", "/v1/models", Host="evil.com", **{kind: "127.0.0.1"}))


def foreign_origin(random: Random) -> Attack:
    body = json.dumps(fields()).encode()
    return Attack("foreign origin", request("POST", random.choice((CHAT, TEXT)), body, Origin=random.choice(ORIGINS)))


def wrong_type(random: Random) -> Attack:
    body = json.dumps(fields()).encode()
    return Attack("wrong type", request("POST", random.choice((CHAT, TEXT)), body, Content_Type=random.choice(TYPES)))


def form(random: Random) -> Attack:
    """What a page can send without asking: a form whose one field is JSON."""
    body = json.dumps(fields()).encode()[:-1] + b',"x":"=1"}'
    return Attack(
        "form",
        request("POST", TEXT, body, Content_Type=random.choice(("text/plain", "application/x-www-form-urlencoded"))),
    )
