"""A Hugging Face hub on this machine: two servers, as the hub and its CDN are, with repositories that a test pushes.

The library agrees with it unpatched (tests/hub/test_fake_hub.py). Knows nothing of localspec.
`python -m tests.support.fake_hub` serves one by hand.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from types import TracebackType

from tests.support.fake_hub.repository import FakeFile, FakeRepository
from tests.support.fake_hub.routes import Asked, Routes
from tests.support.fake_hub.server import Exchange, Server
from tests.support.fake_hub.switches import HANG, Account, Answer, Cut, Drip, Flip, Kind, Switches, limited, refused

__all__ = [
    "HANG",
    "Account",
    "Answer",
    "Cut",
    "Drip",
    "FakeFile",
    "FakeHub",
    "FakeRepository",
    "Flip",
    "Kind",
    "Request",
    "Switches",
    "limited",
    "refused",
]


@dataclass(frozen=True)
class Request:
    """One line of the hub's log."""

    server: str  # hub | cdn
    kind: Kind
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str] = field(repr=False)  # names in lower case
    status: int  # 0: not answered
    sent_bytes: int  # of the body; where the line broke, the client may have read fewer

    @property
    def range(self) -> str:
        return self.headers.get("range", "")

    @property
    def has_authorization(self) -> bool:
        return "authorization" in self.headers


class FakeHub:
    """A running hub. `account` is the user whose token it knows; None: a hub at which that user is not logged in."""

    def __init__(self, *repositories: FakeRepository, account: Account | None = None, port: int = 0) -> None:
        self.account, self.switches = account, Switches()
        self.routes = Routes(lambda: self.switches, lambda: self.account)
        self.closing, self.stalled = threading.Event(), threading.Event()
        self.faults: list[BaseException | None] = []
        self._lock, self._released = threading.Condition(), 0
        self._exchanges: list[Exchange] = []
        for repository in repositories:
            self.push(repository)
        self._servers = [Server(self, "hub", port), Server(self, "cdn", 0)]
        self.routes.hub, self.routes.cdn = (server.address for server in self._servers)

    def __enter__(self) -> FakeHub:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.closing.set()
        self.release()
        for server in self._servers:
            server.stop()
        if self.faults and fault is None:
            raise AssertionError("the fake hub failed") from self.faults[0]

    @property
    def endpoint(self) -> str:
        return self.routes.hub

    def push(self, repository: FakeRepository, *refs: str) -> FakeRepository:
        """Offers a repository, or a new commit of one: main moves to it, as do these tags and branches; older commits
        stay."""
        self.routes.push(repository, ("main", *refs))
        return repository

    def instead(self, kind: Kind, *answers: Answer | None, times: int = 1) -> None:
        """Answers the next requests of this kind so, one after the other, all these `times` times; None: as usual."""
        self.switches.instead[kind] = iter(answers * times)

    def always(self, kind: Kind, answer: Answer) -> None:
        self.switches.instead[kind] = repeat(answer)

    @property
    def log(self) -> tuple[Request, ...]:
        """Every request in the order of arrival, with what was sent by now."""
        with self._lock:
            return tuple(map(shown, self._exchanges))

    def seen(self, *kinds: Kind, method: str = "") -> tuple[Request, ...]:
        """Those of these kinds in the log."""
        return tuple(one for one in self.log if one.kind in kinds and method in ("", one.method))

    @property
    def weight_bytes(self) -> int:
        """What the CDN has sent."""
        return sum(one.sent_bytes for one in self.seen("cdn"))

    def forget(self) -> None:
        """Empties the log."""
        with self._lock:
            self._exchanges.clear()

    def variables(self, home: Path) -> dict[str, str]:
        """What makes a child talk to this hub and keep its cache in a folder; for monkeypatch.setenv, too."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN": self.account.token if self.account else "",
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "0",
            "TRANSFORMERS_OFFLINE": "0",
            "NO_PROXY": "*",
        }

    def environment(self, home: Path) -> dict[str, str]:
        """A child's whole environment: this process's, without what else it has for hubs and proxies."""
        foreign = ("HF_", "HUGGING", "TRANSFORMERS_")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith(foreign) and not name.upper().endswith("_PROXY")
        }
        return kept | self.variables(home)

    def release(self) -> None:
        """Lets those go on that hang or are held."""
        with self._lock:
            self._released += 1
            self.stalled.clear()
            self._lock.notify_all()

    def begin(self, asked: Asked) -> Exchange:
        with self._lock:
            self._exchanges.append(exchange := Exchange(asked))
        return exchange

    def answer(self, asked: Asked) -> Answer:
        """The scripted answer, or the usual one; after a wait, where this request hangs."""
        with self._lock:
            scripted = next(self.switches.instead.get(asked.kind, iter(())), None)
        if scripted is not None and scripted is not HANG:
            return scripted
        if scripted is HANG or asked.kind in self.switches.hang:
            self.stall()
        with self._lock:
            usual = self.routes.answer(asked)
        return replace(usual, headers={**usual.headers, **self.switches.headers.get(asked.kind, {})})

    def stall(self) -> None:
        """Waits for release, and lets a test know by `stalled`."""
        with self._lock:
            before = self._released
            self.stalled.set()
            self._lock.wait_for(lambda: self._released > before or self.closing.is_set())

    def spend(self, switch: Flip | Cut) -> bool:
        """Whether it applies this time, too."""
        with self._lock:
            applies = switch.times > 0
            switch.times -= applies
        return applies


def shown(exchange: Exchange) -> Request:
    asked = exchange.asked
    facts = {"status": exchange.status, "sent_bytes": exchange.sent_bytes}
    return Request(asked.server, asked.kind, asked.method, asked.path, dict(asked.query), dict(asked.headers), **facts)
