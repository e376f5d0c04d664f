"""A request that no honest client sends, as bytes; and the well-formed one that it is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Build = Callable[[Random], "Attack"]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@dataclass(frozen=True, slots=True)
class Attack:
    """`may_close`: no answer is an answer, too; `is_cut`: the client sends no more after `content` and says so;
    `is_harmless`: it may be answered, since what it carries is text like any other."""

    kind: str
    content: bytes
    may_close: bool = False
    is_cut: bool = False
    is_harmless: bool = False


def request(method: str, path: str, body: bytes = b"", **headers: str | None) -> bytes:
    """A well-formed request, in which `headers` replace what there is; None leaves one out."""
    found: dict[str, str | None] = {"Host": "127.0.0.1"}
    if method == "POST":
        found |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    found |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in found.items() if value is not None)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def fields(**changed: object) -> dict[str, object]:
    """A good body for TEXT or CHAT but for what is changed."""
    return {"prompt": "Hello", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, **changed}
