"""A model's name as people type it, as the name that localspec knows: an address, another case, a slash at the end.

Compares with the names that it is given. Asks no network: of what is not among them, the case stays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from localspec.core import paths
from localspec.models import hub_cache
from localspec.models.addresses import without_address

REST = re.compile(r"[@:]")  # begins what comes after a repository's name


def plain_name(typed: str, keys: Iterable[str], repositories: Iterable[str]) -> str:
    """The one of these keys or repositories that is meant; what is neither, or a path that is there, stays as it is.
    UsageError as for an address."""
    name = without_address(typed)
    if not name or os.path.exists(paths.expanded(name)):
        return name
    name = name.rstrip("/") if hub_cache.REPOSITORY.fullmatch(name.rstrip("/")) else name
    if key := spelled(name, list(keys)):
        return key
    begins = rest.start() if (rest := REST.search(name)) else len(name)
    repo = name[:begins].rstrip("/")
    if "/" not in repo or not hub_cache.REPOSITORY.fullmatch(repo):
        return name
    return f"{spelled(repo, list(repositories)) or repo}{name[begins:]}"


def spelled(name: str, known: list[str]) -> str:
    """The same name, else the first that differs from it by case alone; "" for none."""
    return name if name in known else next((one for one in known if one.casefold() == name.casefold()), "")
