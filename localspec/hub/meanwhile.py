"""What to run while a gate is closed: a pair of the catalogue without a gate, checked to fit on this machine.

Knows nothing about the gate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.main_memory import available_bytes
from localspec.core.requests import WeightOptions
from localspec.hub.client import Client
from localspec.hub.drafting import AUTO, drafter_for
from localspec.hub.records import Meanwhile
from localspec.hub.repository import files_of, inspect, see
from localspec.loading.fit import TOO_LARGE, fit_report, request_here, rough_fit, usable_gpu_bytes
from localspec.models.catalog import Catalog

MOST_TRIED = 6  # repositories that are asked about; headers are read only of what may fit


def meanwhile(client: Client, repo: str, scratch: Path) -> Meanwhile | None:
    """The first pair of the catalogue that has no gate and fits; None where there is none, or the hub fails."""
    for _, other in zip(range(MOST_TRIED), ungated(repo), strict=False):
        with suppress(LocalspecError):
            if found := checked(client, other, scratch):
                return found
    return None


def ungated(repo: str) -> Iterator[str]:
    """Repositories of the catalogue with a drafter and no gate, as far as it knows."""
    for table in Catalog.load().models.values():
        if table.repo and table.repo != repo and table.draft and not table.gated:
            yield table.repo


def checked(client: Client, repo: str, scratch: Path) -> Meanwhile | None:
    """The pair, if nothing stands in its way and it fits in memory whole."""
    seen = see(client, repo, "", scratch)
    gpu_bytes = usable_gpu_bytes()
    rough = rough_fit(seen.info.parameters, free=available_bytes(), gpu_bytes=gpu_bytes)
    if not seen.access.may_read or rough == TOO_LARGE:
        return None
    target = inspect(seen, files_of(seen, ""))
    drafter = drafter_for(client, target, AUTO, scratch)
    if target.snapshot is None or drafter.offer.kind == "none":
        return None
    exit_layer = drafter.offer.exit_layer
    request = request_here(WeightOptions(), drafter=drafter.snapshot, min_resident=exit_layer, gpu_bytes=gpu_bytes)
    report = fit_report(target.snapshot, request)
    name = drafter.offer.name if drafter.offer.kind == "model" else ""
    return Meanwhile(repo, name, report.word) if report.word.startswith("fits") else None
