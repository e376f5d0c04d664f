"""A model's name as people type it, as the name that localspec knows: an address, another case, a slash at the end.

Knows the catalogue and the names of what is in the cache. Asks no network: of what is not known, the case stays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from localspec.core import paths
from localspec.hub.addresses import without_address
from localspec.models import hub_cache
from localspec.models.catalog import Catalog

REST = re.compile(r"[@:]")  # begins what comes after a repository's name


def plain_name(typed: str) -> str:
    """The name of a model; a path that is there stays as it is. UsageError as for an address."""
    name = without_address(typed)
    if not name or os.path.exists(paths.expanded(name)):
        return name
    name = name.rstrip("/") if hub_cache.REPOSITORY.fullmatch(name.rstrip("/")) else name
    catalog = Catalog.load()
    if catalog.key_of(name):
        return name
    keys = [word for key, table in catalog.models.items() for word in (key, *table.aliases)]
    if key := spelled(name, keys):
        return key
    begins = rest.start() if (rest := REST.search(name)) else len(name)
    repo = name[:begins].rstrip("/")
    if "/" not in repo or not hub_cache.REPOSITORY.fullmatch(repo):
        return name
    known = [*hub_cache.folders(), *named_in(catalog)]
    return f"{repo if repo in known else spelled(repo, known) or repo}{name[begins:]}"


def named_in(catalog: Catalog) -> Iterator[str]:
    """The repositories of models.toml, those of drafters too."""
    for table in catalog.models.values():
        yield table.repo or ""
        yield (table.draft.model if table.draft else None) or ""


def spelled(name: str, known: Iterable[str]) -> str:
    """The first of these that differs from a name by case alone; "" for none."""
    return next((one for one in known if one.casefold() == name.casefold()), "")
