"""Models of the hub that might draft for a target: those of its family.

Knows nothing about speed, and compares no tokenizers itself.
"""

from __future__ import annotations

from localspec.core import paths
from localspec.core.errors import LocalspecError
from localspec.hub.client import Client
from localspec.hub.records import SearchRequest, SearchRow
from localspec.hub.request import asked_repository
from localspec.hub.search import family, search
from localspec.models import hub_cache
from localspec.models.checkpoint import Snapshot
from localspec.models.gguf import stores
from localspec.models.gguf.quants import ENDING
from localspec.runtime.pairs import is_small

MOST_FOUND = 30


def of_its_family(client: Client, target: Snapshot, name: str) -> list[SearchRow]:
    """Repositories of the hub that are of the target's family and small enough to draft for it, as the hub ranks them.
    `name`: what the target is called by; of a folder or file that came from no repository its own name is searched."""
    repo = repository_of(name, target)
    words = "" if repo else family(plain_name(name))
    page = search(client, SearchRequest(words, sort="downloads", limit=MOST_FOUND, drafter_for=repo))
    small = (row for row in page.rows if not row.note and is_small(row.num_bytes, target.total_bytes))
    return [row for row in small if row.repo != repo]


def searched_words(name: str, target: Snapshot | None) -> str:
    """The words by which models of its family are searched. `target` None: it is a repository that is not here."""
    return family(repository_of(name, target) or plain_name(name))


def repository_of(name: str, target: Snapshot | None) -> str:
    """The repository of a model; "" for one that came from none."""
    try:
        return asked_repository(name)[0]
    except LocalspecError:
        return hub_cache.fetched_from(target.folder)[0] if target else ""


def plain_name(name: str) -> str:
    """The last part of a folder's, a file's or another program's name."""
    store, _, rest = name.partition(":")
    return paths.expanded(rest if store in stores.STORES else name).absolute().name.removesuffix(ENDING)
