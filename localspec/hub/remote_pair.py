"""Verdicts about pairs of which a model or both may be on the hub: one drafter, or candidates of this machine or of the
target's family on the hub.

Reads headers and tokenizers only; knows nothing about speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from localspec.hub.candidates import of_its_family
from localspec.hub.client import Client
from localspec.hub.faults import skipping_unusable
from localspec.hub.named_models import open_any
from localspec.hub.records import PairFound, PairRequest
from localspec.models import hub_cache
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import Snapshot
from localspec.runtime.local_models import snapshots
from localspec.runtime.pairs import MOST_COMPARED, DrafterCandidate, candidates, pair, ranked


def answer_pair(client: Client, request: PairRequest, scratch: Path) -> PairFound:
    """The verdict about a drafter, or about the candidates, best first."""
    target, _ = open_any(client, request.target, scratch)
    if request.drafter:
        drafter, on_disk = open_any(client, request.drafter, scratch)
        verdict = pair(target, drafter)
        return PairFound((DrafterCandidate(request.drafter, drafter.total_bytes, on_disk=on_disk, verdict=verdict),))
    if not request.hub:
        return PairFound(tuple(candidates(target, snapshots(Catalog.load()))))
    return PairFound(tuple(of_the_hub(client, target, request.target, scratch)))


def of_the_hub(
    client: Client, target: Snapshot, name: str, scratch: Path, *, heard: Callable[[], None] = lambda: None
) -> list[DrafterCandidate]:
    """Candidates of the target's family on the hub, best first: by verdict, size, then downloads. `heard` is called
    before each that is compared."""
    return ranked(target.total_bytes, of_the_family(client, target, name, scratch, heard))


def of_the_family(
    client: Client, target: Snapshot, name: str, scratch: Path, heard: Callable[[], None]
) -> Iterator[DrafterCandidate]:
    """The candidates as the hub ranks them, the first few with a verdict. What may not be read, or cannot be loaded, is
    left out."""
    for compared, row in enumerate(of_its_family(client, target, name)):
        if compared >= MOST_COMPARED:
            yield DrafterCandidate(row.repo, row.num_bytes, on_disk=is_here(row.repo))
            continue
        heard()
        if found := judged(client, target, row.repo, scratch):
            yield found


def judged(client: Client, target: Snapshot, repo: str, scratch: Path) -> DrafterCandidate | None:
    """A candidate with its verdict; None where it may not be read, or cannot be loaded."""
    with skipping_unusable():
        drafter, _ = open_any(client, repo, scratch)
        return DrafterCandidate(repo, drafter.total_bytes, on_disk=is_here(repo), verdict=pair(target, drafter))
    return None


def is_here(repo: str) -> bool:
    return hub_cache.snapshot(repo) is not None
