"""Licences as repositories name them: which forbid commercial use, and which the user has acknowledged.

Decides by tags only and reads no licence's text. Knows nothing about the network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any  # Any: a model card's fields, a stranger's

from localspec.core import paths
from localspec.core.json_store import JsonStore
from localspec.core.sanitize import one_line
from localspec.hub.records import Licence

PULLED = JsonStore(paths.pulled_licences_file, Licence)
ACKNOWLEDGED = JsonStore(paths.licences_file, str)
PREFIX = "license:"  # of a tag
LONGEST_NAME, LONGEST_LINK = 80, 300
# FAIR Noncommercial Research; the others say so in their names, as cc-by-nc-4.0 does.
FAIR = "fair"
SAYS_SO = re.compile(r"(^|[-_ ])nc([-_ ]|$)|non-?commercial", re.IGNORECASE)


def read_licence(card: Mapping[str, Any] | None, tags: Sequence[str]) -> Licence:
    """The licence of a model card, else of the repository's tags."""
    fields = card or {}
    tag = text(fields.get("license")) or next((tag[len(PREFIX) :] for tag in tags if tag.startswith(PREFIX)), "")
    tag, name = one_line(tag)[:LONGEST_NAME], one_line(text(fields.get("license_name")))[:LONGEST_NAME]
    link = one_line(text(fields.get("license_link")))[:LONGEST_LINK]
    return Licence(tag, name, link, non_commercial=is_non_commercial(tag, name))


def is_non_commercial(tag: str, name: str = "") -> bool:
    """True where the tag or name itself forbids commercial use; False proves nothing."""
    return tag.lower() == FAIR or any(SAYS_SO.search(word) for word in (tag, name))


def text(value: object) -> str:
    """A field's text; of a list of licences all, as one."""
    if isinstance(value, list):
        return ", ".join(one for one in value if isinstance(one, str))
    return value if isinstance(value, str) else ""


def must_acknowledge(repo: str, licence: Licence) -> bool:
    """Whether the user has to acknowledge this licence first: non-commercial, and not yet acknowledged for this
    repository."""
    return licence.non_commercial and ACKNOWLEDGED.read().get(repo) != licence.words


def acknowledge(repo: str, licence: Licence) -> None:
    """Remembers that the user has acknowledged this licence of this repository."""
    ACKNOWLEDGED.put(repo, licence.words)


def remember(repo: str, licence: Licence) -> None:
    """Remembers what the hub named for a repository that is pulled."""
    if licence.tag or licence.name:
        PULLED.put(repo, licence)


def remembered(repo: str) -> Licence:
    """The licence that a repository was pulled with; without a name where none is known."""
    return PULLED.read().get(repo, Licence())


def forget(repo: str) -> None:
    PULLED.remove(repo)
