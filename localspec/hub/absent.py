"""Models that are not on this machine, and so are asked of the hub: the error where it cannot be asked.

Knows no process of the hub's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from localspec.core.errors import HubAway, NotDownloaded
from localspec.hub.environment import is_offline
from localspec.models.catalog import Catalog

SWITCHED_OFF = "the network is switched off: unset HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE."


@contextmanager
def asking_about(*names: str) -> Iterator[None]:
    """Names the first of these that is not here where the hub cannot be asked about it: NotDownloaded before the block,
    where the network is switched off; HubAway where it is gone."""
    absence = first_absent(*names)
    if absence is not None and is_offline():
        raise NotDownloaded(joined(absence, SWITCHED_OFF), hint=absence.hint)
    try:
        yield
    except HubAway as away:
        if absence is None:
            raise
        raise HubAway(joined(absence, away.message), hint=away.hint) from away


def first_absent(*names: str) -> NotDownloaded | None:
    """The catalogue's error for the first of these that is not on this machine."""
    catalog = Catalog.load()
    for name in filter(None, names):
        try:
            catalog.resolve(name)
        except NotDownloaded as absence:
            return absence
    return None


def joined(absence: NotDownloaded, reason: str) -> str:
    """Both as one sentence."""
    begun = re.sub("^(The|There) ", lambda found: found[0].lower(), reason)  # not a name
    return f"{absence.message.rstrip('.')}, and {begun}"
