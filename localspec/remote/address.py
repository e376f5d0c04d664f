"""A server's address, as it is typed and as requests need it. Asks no network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from localspec.core.errors import UsageError
from localspec.core.sanitize import one_line

LONGEST = 300  # characters
PORTS = {"http": 80, "https": 443}
LOOPBACK = ("127.0.0.1", "::1", "localhost")
EXAMPLE = "Write it as http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class Address:
    """`path` comes before /v1: "" for most servers."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def url(self) -> str:
        """The address without /v1, and without a port that goes without saying."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    @property
    def is_open(self) -> bool:
        """Whether a key would cross a network unencrypted."""
        return self.scheme == "http" and self.host not in LOOPBACK


def is_address(text: str) -> bool:
    """Whether this is meant as a server's address, not as a model's name."""
    return text.startswith(("http://", "https://"))


def parse(text: str) -> Address:
    """The address of `http://HOST:PORT`, with or without /v1 after it; UsageError for anything else."""
    typed = text.strip()
    shown = one_line(typed)[:80]
    if len(typed) > LONGEST or not re.fullmatch(r"[!-~]+", typed):
        raise UsageError(f"'{shown}' is not a server's address.", hint=EXAMPLE)
    try:
        parts = urlsplit(typed if "://" in typed else f"http://{typed}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise UsageError(f"'{shown}' is not a server's address.", hint=EXAMPLE) from None
    if parts.scheme not in PORTS or not host:
        raise UsageError(f"'{shown}' is not the address of an HTTP server.", hint=EXAMPLE)
    if parts.username is not None or parts.password is not None:
        raise UsageError("A server's address holds no key.", hint="Put it into the environment, and name it: --key-env")
    if parts.query or parts.fragment:
        raise UsageError(f"'{shown}' has more than an address in it.", hint=EXAMPLE)
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return Address(parts.scheme, host, port or PORTS[parts.scheme], path)
