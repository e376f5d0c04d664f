"""Looks for servers on this machine, at the ports where such programs listen. Asks only when it is called."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from localspec.core.errors import AccessDenied, LocalspecError
from localspec.remote.exchange import ServerTimeouts
from localspec.remote.kinds import KINDS, PROBED
from localspec.remote.server import FoundServer, Remote, find

QUICK = ServerTimeouts(connect=1.0, short=3.0, silence=3.0)  # on this machine
PORTS = tuple(KINDS[name].port for name in PROBED)


def look(
    ports: Iterable[int] = PORTS, deadlines: ServerTimeouts = QUICK
) -> list[tuple[str, FoundServer | AccessDenied]]:
    """The servers that answer on this machine, by address; for one that refuses, its refusal."""
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    with ThreadPoolExecutor(len(urls) or 1) as pool:
        answers = list(pool.map(lambda url: answer(url, deadlines), urls))
    return [(url, found) for url, found in zip(urls, answers, strict=True) if found is not None]


def answer(url: str, deadlines: ServerTimeouts) -> FoundServer | AccessDenied | None:
    """The server of these that is at the address, if one is."""
    try:
        return find(Remote(url), deadlines)
    except AccessDenied as fault:
        return fault
    except LocalspecError:
        return None
