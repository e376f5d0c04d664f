"""What to run while a gate is closed: a pair of the catalogue without a gate, checked to fit on this machine.

Knows nothing about the gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from localspec.core.errors import PullError
from localspec.core.main_memory import available_bytes
from localspec.core.requests import WeightOptions
from localspec.engine.drafters.table import has_model
from localspec.hub.blobs import is_complete
from localspec.hub.client import Client
from localspec.hub.drafter import AUTO, drafter_for
from localspec.hub.faults import skipping_unusable
from localspec.hub.records import Meanwhile
from localspec.hub.repository import Seen, files_of, inspect, record, see
from localspec.loading.fit import TOO_LARGE, fit_report, request_here, rough_fit, usable_gpu_bytes
from localspec.models.catalog import Catalog

MOST_CHECKED = 3  # repositories whose headers are read


def meanwhile(
    client: Client, repo: str, scratch: Path, *, heard: Callable[[], None] = lambda: None
) -> Meanwhile | None:
    """The largest pair of the catalogue that has no gate and fits; None where there is none, or the hub fails. `heard`
    is called before each repository."""
    with suppress(PullError):  # a hub that is silent once is not asked again
        for seen in that_may_fit(client, repo, scratch, heard)[:MOST_CHECKED]:
            heard()
            with skipping_unusable():
                if found := checked(client, seen, scratch):
                    return found
    return None


def that_may_fit(client: Client, repo: str, scratch: Path, heard: Callable[[], None]) -> list[Seen]:
    """The catalogue's pairs that this account may read and whose number of parameters lets hope, the largest first."""
    free, gpu_bytes = available_bytes(), usable_gpu_bytes()
    found = []
    for other in ungated(repo):
        heard()
        with skipping_unusable():
            seen = see(client, other, "", scratch)
            rough = rough_fit(seen.info.parameters, free=free, gpu_bytes=gpu_bytes)
            if seen.access.may_read and seen.info.parameters > 0 and rough != TOO_LARGE:
                found.append(seen)
    return sorted(found, key=lambda seen: -seen.info.parameters)


def ungated(repo: str) -> Iterator[str]:
    """Repositories of the catalogue with a drafter and no gate, as far as it knows."""
    for table in Catalog.load().models.values():
        if table.repo and table.repo != repo and table.draft and not table.gated:
            yield table.repo


def checked(client: Client, seen: Seen, scratch: Path) -> Meanwhile | None:
    """The pair, if nothing stands in its way and it fits in memory whole."""
    target = inspect(seen, files_of(seen, ""))
    drafter = drafter_for(client, target, AUTO, scratch)
    if target.snapshot is None or drafter.offer.kind == "none":
        return None
    exit_layer, gpu_bytes = drafter.offer.exit_layer, usable_gpu_bytes()
    request = request_here(WeightOptions(), drafter=drafter.snapshot, min_resident=exit_layer, gpu_bytes=gpu_bytes)
    report = fit_report(target.snapshot, request)
    name = drafter.offer.name if has_model(drafter.offer.kind) else ""
    fetched = [one for one in (target, drafter.model) if one]
    is_here = all(is_complete(record(one)) for one in fetched)
    return Meanwhile(seen.repo, name, report.word, is_here) if report.word.startswith("fits") else None
