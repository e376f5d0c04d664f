"""Verdicts about pairs of which a model or both are on the hub: one drafter, or candidates of the target's family.

Reads headers and tokenizers only; knows nothing about speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from localspec.core.errors import LocalspecError, NotDownloaded, PullError
from localspec.hub.client import Client
from localspec.hub.records import PairFound, PairRequest, SearchRequest
from localspec.hub.remote_fit import open_named
from localspec.hub.search import search
from localspec.models import hub_cache
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.runtime.pairs import Candidate, is_small, pair, ranked

MOST_COMPARED = 5  # candidates whose tokenizers are fetched
MOST_FOUND = 30


def answer_pair(client: Client, request: PairRequest, scratch: Path) -> PairFound:
    """The verdict about a drafter, or about the hub's candidates, best first."""
    target, _ = open_any(client, request.target, scratch)
    if request.drafter:
        drafter, on_disk = open_any(client, request.drafter, scratch)
        verdict = pair(target, drafter)
        return PairFound((Candidate(drafter.name, drafter.total_bytes, on_disk=on_disk, verdict=verdict),))
    return PairFound(tuple(ranked(target.total_bytes, of_the_hub(client, target, request.target, scratch))))


def open_any(client: Client, name: str, scratch: Path) -> tuple[Snapshot, bool]:
    """A model by its key, folder, file or repository, and whether it is on this machine."""
    try:
        entry = Catalog.load().resolve(name)
    except NotDownloaded:
        if not Catalog.load().repository(name.partition(":")[0]):
            raise
        return open_named(client, name, scratch), False
    return open_snapshot(entry.path, entry.key), True


def of_the_hub(client: Client, target: Snapshot, name: str, scratch: Path) -> Iterator[Candidate]:
    """Candidates of the target's family on the hub: the first few with a verdict, as the hub ranks them. What may not
    be read, or cannot be loaded, is left out."""
    repo = Catalog.load().repository(name.partition(":")[0]) or target.name
    page = search(client, SearchRequest(sort="downloads", limit=MOST_FOUND, drafter_for=repo))
    small = [row for row in page.rows if not row.note and is_small(row.num_bytes, target.total_bytes)]
    for compared, row in enumerate(row for row in small if row.repo != repo):
        if compared >= MOST_COMPARED:
            yield Candidate(row.repo, row.num_bytes, on_disk=is_here(row.repo))
        elif found := judged(client, target, row.repo, scratch):
            yield found


def judged(client: Client, target: Snapshot, repo: str, scratch: Path) -> Candidate | None:
    """A candidate with its verdict; None where it may not be read, or cannot be loaded."""
    try:
        drafter, _ = open_any(client, repo, scratch)
    except PullError:
        raise
    except LocalspecError:
        return None
    return Candidate(repo, drafter.total_bytes, on_disk=is_here(repo), verdict=pair(target, drafter))


def is_here(repo: str) -> bool:
    return hub_cache.snapshot(repo) is not None
