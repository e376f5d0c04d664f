"""Requests for what is not there, or that a link or a form could make."""

from __future__ import annotations

from random import Random

from tests.support.hostile.request import CHAT, TEXT, Attack, request

PATHS = (
    "/../../../../etc/passwd", "//etc/passwd", "/v1/models/../../../etc/passwd",
    "/v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/v1/models/guide%00", "/v1/models/guide%0d%0aSet-Cookie:%20a=b",
    "/%00", "/%", "/%zz", "/v1/v1/models", "/V1/models", "/models/", "/v1/models/" + "a" * 5000,
    "/v1/models/%F0%9F%92%A9", "/?q=write+me+a+poem", "/index.html", "/docs", "/openapi.json", "/props", "/slots",
    "/api/pull", "/api/tags", "/api/generate", "/api/delete", "/v1/files", "/.env", "/completion",
    "/v1/models/file:///etc/passwd", "/v1/models/~root", "/chat/completions/", "/v1/embeddings", "/;/health",
)  # fmt: skip
WRITES = (
    "/api/pull",
    "/models/load",
    "/v1/models",
    "/slots/0?action=erase",
    "/shutdown",
    "/health",
    "/metrics",
    "/load",
)


def strange_path(random: Random) -> Attack:
    return Attack("strange path", request("GET", random.choice(PATHS)), may_close=True)


def asked_by_get(random: Random) -> Attack:
    """An answer that a link would start."""
    path = random.choice((CHAT, TEXT, "/chat/completions", "/completions"))
    return Attack("asked by GET", request("GET", f"{path}?q=hello&prompt=hello&max_tokens=5"))


def other_method(random: Random) -> Attack:
    method = random.choice(("PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND", "get", "post", "X" * 100))
    return Attack(
        "other method",
        request(method, random.choice((CHAT, "/v1/models", "/v1/models/guide", "/health"))),
        may_close=True,
    )


def write_elsewhere(random: Random) -> Attack:
    return Attack("write elsewhere", request("POST", random.choice(WRITES), b'{"model":"guide","name":"org/model"}'))
