"""A server that still loads its model, as localspec and llama-server say it: 503 and "Loading model" for /health. It is
asked again until it has.

Knows no chat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import sleep
from typing import Any  # Any: JSON from a stranger

import msgspec

from localspec.core.errors import LocalspecError
from localspec.core.events import Loading, Waiting
from localspec.core.sanitize import one_line
from localspec.remote import faults
from localspec.remote.exchange import Exchange
from localspec.remote.figures import Count, Part, part
from localspec.remote.server import Asking

PATH = "/health"
LOADS = "the server loads its model"
TICK = 0.3  # seconds between two questions: what Esc takes at most
LONGEST_STAGE = 60
MOST_ANSWER = 64 << 10


class Progress(Part, frozen=True):
    """A localspec's, beside the error; of llama-server there is none."""

    stage: str = ""
    done: Count = 0
    total: Count = 0


def until_loaded(asking: Asking) -> Iterator[Loading]:
    """How far it is, again and again until it no longer says that it loads."""
    while (progress := ask(asking)) is not None:
        yield progress
        sleep(TICK)


def ask(asking: Asking) -> Loading | None:
    """How far it is; None where it has loaded, or does not say."""
    try:
        with Exchange(asking.access, asking.deadlines, within=asking.deadlines.short) as exchange:
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
    progress = (part(error, "progress", Progress) if isinstance(error, dict) else None) or Progress()
    stage = one_line(progress.stage)[:LONGEST_STAGE]
    whole = max(progress.total, progress.done, 1)
    return Loading(f"{LOADS}: {stage}" if stage else LOADS, progress.done, whole, "steps" if whole == 1 else "bytes")


def while_loading(progress: Loading) -> Waiting:
    """The same, for an answer that waits for it."""
    share = f", {100 * progress.done // progress.total} %" if progress.total > 1 else ""
    return Waiting(f"{progress.stage}{share}")
