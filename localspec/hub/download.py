"""The order of a download: free disk, the target, its drafter; each is fetched, checked, linked and only then named.

Knows no plan's making and no pipe.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from localspec.core.disk import free_bytes
from localspec.core.errors import LocalspecError
from localspec.core.events import Notice
from localspec.engine.drafters.table import has_model
from localspec.hub import blobs, cache, manifests, pulls
from localspec.hub.faults import hub_faults
from localspec.hub.licences import remember
from localspec.hub.meter import Meter
from localspec.hub.records import Fetched, Progress, Pulled, PullPlan, PullRequest, Repository, Retrying
from localspec.hub.refusals import refuse_full, refuse_unready
from localspec.hub.transfer import Transfer, TransferTimeouts
from localspec.models import hub_cache
from localspec.runtime import known_pairs

Happening = Progress | Retrying | Notice | Fetched | Pulled
USUAL = TransferTimeouts()


def fetch(plan: PullPlan, request: PullRequest, deadlines: TransferTimeouts = USUAL) -> Iterator[Happening]:
    """Fetches what was planned, the target first: it is useful alone."""
    refuse_unready(plan)
    for repository in plan.repositories:
        blobs.check_names(repository)
    refuse_full(plan, free_bytes(hub_cache.folder()))
    for repository in plan.repositories:
        pulls.begin(repository, request)
    if request.xet:
        yield Notice("info", "xet", "The hub's library fetches the weights (--xet): a stopped download starts over.")
    here = [sum(blobs.bytes_here(one.repo, file) for file in one.files) for one in plan.repositories]
    meter = Meter(plan.num_bytes, sum(here))
    fetched: list[Fetched] = []
    for at, repository in enumerate(plan.repositories):
        meter.turn_to(repository.repo, elsewhere=sum(here) - here[at])
        fetched.append((yield from fetch_one(repository, request, deadlines, meter)))
        here[at] = repository.num_bytes
    if has_model(plan.offer.kind):
        known_pairs.PULLED.put(plan.target.repo, plan.offer.name)
    path = cache.model_path(plan.target)
    yield Pulled(fetched[0], fetched[1] if plan.drafter else None, "" if path.is_dir() else str(path))


def fetch_one(
    repository: Repository, request: PullRequest, deadlines: TransferTimeouts, meter: Meter
) -> Generator[Happening, None, Fetched]:
    """One repository, until its revision names the commit; what it is stopped by is noted, and raised."""
    checked, before = 0, blobs.read_reference(repository.repo, repository.revision or hub_cache.MAIN)
    if not blobs.is_complete(repository):
        transfer = Transfer(repository, meter, xet=request.xet, deadlines=deadlines)
        try:
            with hub_faults(repository.repo, keeps=True):
                yield from transfer.events()
                cache.check_loadable(repository)
                cache.name_commit(repository)
        except LocalspecError as fault:
            pulls.stop(repository, fault.message)
            raise
        checked = transfer.checked
    pulls.finish(repository)
    remember(repository.repo, repository.licence)
    manifests.remember(repository, repairs=request.repairs)
    manifests.replaced(repository.repo, before)
    folder = blobs.snapshot_dir(repository.repo, repository.commit)
    fetched = Fetched(repository.repo, repository.commit, str(folder), repository.num_bytes, checked)
    yield fetched
    return fetched
