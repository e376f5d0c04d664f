"""A server that still loads its model, as localspec and llama-server say it: 503 and "Loading model" for /health. It is
asked again until it has.

Knows no chat.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from time import sleep
from typing import Any  # Any: JSON from a stranger

import msgspec

from localspec.core.errors import LocalspecError, RemoteError
from localspec.core.events import AnyEvent, Loading, Waiting
from localspec.core.sanitize import one_line
from localspec.remote import faults
from localspec.remote.exchange import HttpExchange, ServerTimeouts
from localspec.remote.figures import Count, ServerPart, part
from localspec.remote.server import FoundServer, Keep, Remote, ServerProbe, find

PATH = "/health"
LOADS = "the server loads its model"
TICK = 0.3  # seconds between two questions: what Esc takes at most
LONGEST_STAGE = 60
MOST_ANSWER = 64 << 10


class LoadProgress(ServerPart, frozen=True):
    """A localspec's, beside the error; of llama-server there is none."""

    stage: str = ""
    done: Count = 0
    total: Count = 0


def find_loaded(
    remote: Remote, deadlines: ServerTimeouts, keep: Keep, is_over: Callable[[], bool]
) -> Generator[AnyEvent, None, FoundServer]:
    """The server, once it has loaded its model. A localspec says what it is before that; llama-server refuses all."""
    asking = ServerProbe(remote.access, deadlines, keep)
    try:
        found = find(remote, deadlines, keep)
    except RemoteError as fault:
        if isinstance(fault.__cause__, OSError) or not (yield from waited(asking, is_over, as_it_is)):
            raise
        return find(remote, deadlines, keep)
    if found.kind.loads and (yield from waited(asking, is_over, as_it_is)):
        return find(remote, deadlines, keep)
    return found


def waited(
    asking: ServerProbe, is_over: Callable[[], bool], shown: Callable[[Loading], AnyEvent]
) -> Generator[AnyEvent, None, bool]:
    """How far the server is, as it is to be shown, until it no longer says that it loads; whether it did."""
    is_loading = False
    while not is_over() and (progress := ask(asking)) is not None:
        is_loading = True
        yield shown(progress)
        sleep(TICK)
    return is_loading


def ask(asking: ServerProbe) -> Loading | None:
    """How far it is; None where it has loaded, or does not say."""
    try:
        with HttpExchange(asking.access, asking.deadlines, within=asking.deadlines.short) as exchange:
            asking.keep(exchange)
            response = exchange.ask("GET", PATH, also=503)
            return None if response.status == 200 else read(exchange.whole(response, MOST_ANSWER))
    except LocalspecError:
        return None


def read(body: bytes) -> Loading | None:
    """The progress in a refusal; None for one that is for another reason."""
    if not faults.is_loading(faults.words(body)):
        return None
    found: Mapping[str, Any] = msgspec.json.decode(body)
    error = found.get("error")
    progress = (part(error, "progress", LoadProgress) if isinstance(error, dict) else None) or LoadProgress()
    stage = one_line(progress.stage)[:LONGEST_STAGE]
    whole = max(progress.total, progress.done, 1)
    return Loading(f"{LOADS}: {stage}" if stage else LOADS, progress.done, whole, "steps" if whole == 1 else "bytes")


def as_it_is(progress: Loading) -> AnyEvent:
    return progress


def while_loading(progress: Loading) -> Waiting:
    """The same, for an answer that waits for it."""
    share = f", {100 * progress.done // progress.total} %" if progress.total > 1 else ""
    return Waiting(f"{progress.stage}{share}")
