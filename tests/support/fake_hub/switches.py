"""What a fake hub can be made to do wrong, and whom it lets in. Records only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.support.fake_hub.repository import FakeFile, FakeRepository

Kind = Literal[
    "info", "tree", "resolve", "cdn", "auth-check", "search", "whoami", "agent-harnesses", "xet-read-token", "other"
]

LOG_IN = (
    "Access to model {} is restricted. You must have access to it and be authenticated to access it. Please log in."
)
NOT_IN_LIST = (
    "Access to model {0} is restricted and you are not in the authorized list. "
    "Visit https://huggingface.co/{0} to ask for access."
)
AWAITING = "Your request to access model {} is awaiting a review from the repo authors."
SCOPE = "Please enable access to public gated repositories in your fine-grained token settings to view this repository."


@dataclass(frozen=True)
class Answer:
    """A status with headers, and a body: bytes of its own, or a file's."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    file: FakeFile | None = None


HANG = Answer(0)  # in a script: no answer until released, then the usual one


def refused(status: int, message: str, code: str = "", **headers: str) -> Answer:
    """An error as the hub words it: a header says which, another says it in words."""
    codes = {"X-Error-Code": code} if code else {}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, {**codes, "X-Error-Message": message, **named}, b'{"error":"refused"}')


def limited(seconds: int) -> Answer:
    """Too many requests, as the hub says it: none is left, and so many seconds are until there are some again."""
    named = {"ratelimit": f'"api";r=0;t={seconds}', "ratelimit-policy": '"fixed window";"api";q=500;w=300'}
    return refused(429, "Too many requests", **named)


@dataclass(frozen=True)
class Account:
    """The only user that the hub knows, and what the authors of gated and private repositories let them read."""

    name: str = "ana"
    token: str = "hf_fakeTokenOfAna"
    may_read: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()  # asked for; the authors have not answered
    reads_gated: bool = True  # a fine-grained token may lack this scope

    @property
    def whoami(self) -> dict[str, object]:
        scope = {"canReadGatedRepos": self.reads_gated, "global": [], "scoped": []}
        token = {"displayName": "laptop", "role": "fineGrained", "fineGrained": scope}
        auth = {"type": "access_token", "accessToken": token}
        return {"type": "user", "id": "5f", "name": self.name, "fullname": self.name, "orgs": [], "auth": auth}

    def gate(self, repository: FakeRepository) -> Answer | None:
        """Why this account may not read a gated repository."""
        if not self.reads_gated:
            return refused(403, SCOPE)
        if repository.name in self.may_read:
            return None
        text = AWAITING if repository.name in self.pending else NOT_IN_LIST
        return refused(403, text.format(repository.name), "GatedRepo")


@dataclass
class Flip:
    """One bit of the byte at `at` (counted from the end where negative) is wrong in the next `times` bodies with it."""

    at: int = -1
    times: float = math.inf


@dataclass
class Cut:
    """The line breaks after so many bytes of a body, in the next `times` longer ones."""

    after: int
    times: float = 1


@dataclass(frozen=True)
class Drip:
    """A slow line: so many bytes, then a wait; which ends at once where the hub closes."""

    piece: int = 1
    seconds: float = 1.0


@dataclass
class Switches:
    """What is wrong; each may be set at any time. From `hold_after` to `length_off_by`: only in the CDN's bodies."""

    instead: dict[Kind, Iterator[Answer | None]] = field(default_factory=dict)  # next answers; None: as usual
    hang: set[Kind] = field(default_factory=set)  # accepts and never answers, until released
    headers: dict[Kind, dict[str, str]] = field(default_factory=dict)  # in place of, or beside, those of usual answers
    hold_after: int | None = None  # bytes of a body after which it pauses, until released
    only: str | None = None  # the path they concern; None: every file's
    flip: Flip | None = None
    cut: Cut | None = None
    drip: Drip | None = None
    ignore_range: bool = False  # 200 and the whole file
    length_off_by: int = 0  # what Content-Length has too much
    signature_uses: float = math.inf  # GETs that a signed location is good for, then 403
    location: Callable[[str], str] | None = None  # where the hub sends for an LFS file instead
    cas: str = ""  # the address of Xet's storage, as the hub names it
    tree_page: int = 1000
    search_page: int = 100
