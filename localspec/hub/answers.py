"""What the hub's process answers to each question. Knows no pipe."""

from __future__ import annotations

from collections.abc import Callable, Generator
from threading import Lock

from localspec.core import paths
from localspec.core.errors import UsageError
from localspec.hub.client import Client
from localspec.hub.deletion import delete
from localspec.hub.download import fetch
from localspec.hub.environment import endpoint
from localspec.hub.login import read_login
from localspec.hub.plan import prepare
from localspec.hub.records import (
    AnyAsk,
    AskDelete,
    AskFit,
    AskPair,
    AskPull,
    AskSearch,
    Go,
    HubAnswer,
    Progress,
)
from localspec.hub.remote_fit import answer_fit
from localspec.hub.remote_pair import answer_pair
from localspec.hub.search import search
from localspec.hub.transfer import TransferTimeouts


def answers_to(question: AnyAsk, silence: float, report: Callable[[Progress], None]) -> Generator[HubAnswer]:
    """The answers, one after the other; `report` hears what comes before a plan. Nothing is downloaded or deleted
    unless the plan that comes first is iterated past."""
    scratch, reports = paths.headers_dir(), Reported(report)
    client = Client(
        endpoint(),
        read_login(),
        seconds=silence / 3,  # the parent ends a process that is silent for longer than `silence`
        answer_seconds=silence * 2 / 3,
        heard=reports.again,
    )
    match question:
        case AskPull(request):
            plan = prepare(client, request, scratch, report=reports)
            yield plan
            yield from fetch(plan, request, TransferTimeouts(silence))
        case AskSearch(searched):
            yield search(client, searched)
        case AskFit(fitted):
            yield answer_fit(client, fitted, scratch)
        case AskPair(paired):
            yield answer_pair(client, paired, scratch)
        case AskDelete(repos, older, models):
            yield from delete(repos, older, models)
        case Go():
            raise UsageError("There is no plan of a download or a deletion to go on with.", hint="Ask for one first.")


class Reported:
    """Reports progress, and repeats the last of it while bytes arrive: a slow hub is not a silent one."""

    def __init__(self, report: Callable[[Progress], None]) -> None:
        self._report, self._last, self._lock = report, Progress("", "resolving", 0, 0), Lock()

    def __call__(self, progress: Progress) -> None:
        with self._lock:
            self._last = progress
            self._report(progress)

    def again(self) -> None:
        self(self._last)
