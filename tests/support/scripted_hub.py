"""A hub that answers from a script: what HubProcess would yield, record by record, with no process and no network.

    hub = ScriptedHub({AskPull: [[a_plan()]], Go: [[a_fetched(), a_pulled()]]})
    hub.install(monkeypatch)

Each question takes the next list of its kind; the last list of a kind is given again. An exception in a list is raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any  # Any: fields of records by name

import pytest
from msgspec.structs import replace

from localspec.hub.process import HubProcess
from localspec.hub.records import (
    Access,
    AnyAsk,
    Ask,
    DraftOffer,
    Fetched,
    HubAnswer,
    Licence,
    Pulled,
    PullPlan,
    RemoteFile,
    Repository,
)
from localspec.loading.fit import FitReport, FormatFit

Scripts = Mapping[type[Ask], Sequence[Sequence[HubAnswer | Exception]]]
COMMIT = "1a2b3c4d" * 5
GB = 1_000_000_000


class ScriptedHub:
    """`asked`: the questions so far. `closed`: how often an end was closed."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = {kind: list(lists) for kind, lists in scripts.items()}
        self.asked: list[AnyAsk] = []
        self.closed = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> ScriptedHub:
        """Every HubProcess answers from this script from here on, whoever has imported it; the network is on."""
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setattr(HubProcess, "ask", lambda _, question: self.ask(question))
        monkeypatch.setattr(HubProcess, "close", lambda _: self.close())
        return self

    def ask(self, question: AnyAsk) -> Iterator[HubAnswer]:
        self.asked.append(question)
        lists = self.scripts[type(question)]
        for answer in lists.pop(0) if len(lists) > 1 else lists[0]:
            if isinstance(answer, BaseException):
                raise answer
            yield answer

    def close(self) -> None:
        self.closed += 1


def a_repository(name: str = "org/model", **fields: Any) -> Repository:
    """An open repository of 4 GB in two files, half of the first already here."""
    made = Repository(
        name,
        "main",
        COMMIT,
        (
            RemoteFile("model-00001-of-00002.safetensors", 2 * GB, "a" * 64, here=GB),
            RemoteFile("model-00002-of-00002.safetensors", 2 * GB, "b" * 64),
        ),
        Licence("apache-2.0"),
        Access(),
        parameters=2_000_000_000,
        dtype="BF16",
        model_type="llama",
        chat_template=True,
    )
    return replace(made, **fields)


def gated(repository: Repository, gate: str, *, account: str = "ana", by_hand: bool = True) -> Repository:
    """The repository behind a gate, so that no file of it is known."""
    access = Access(gate, f"https://huggingface.co/{repository.repo}", account, by_hand)  # type: ignore[arg-type]
    return replace(repository, access=access, files=())


def a_fit(name: str = "org/model", **fields: Any) -> FitReport:
    """It fits in int8 and not in bf16."""
    formats = (
        FormatFit("bf16", "too large", 13 * GB, 0, 2 * GB, GB),
        FormatFit("int8", "fits", 7 * GB, 0, 2 * GB, GB),
    )
    return replace(FitReport(name, "cpu", 4096, 12 * GB, formats, "int8", "fits in int8"), **fields)


def a_plan(target: Repository | None = None, **fields: Any) -> PullPlan:
    target = target or a_repository()
    offer = DraftOffer("none", detail="no drafter is known for it")
    made = PullPlan(target, None, offer, a_fit(target.repo), 212 * GB, target.bytes_left)
    return replace(made, **fields)


def a_fetched(repository: Repository | None = None, folder: str = "/hub/models--org--model/snapshots/1a2b") -> Fetched:
    repository = repository or a_repository()
    return Fetched(repository.repo, repository.commit, folder, repository.num_bytes, 2)


def a_pulled(plan: PullPlan | None = None, **fields: Any) -> Pulled:
    plan = plan or a_plan()
    drafter = a_fetched(plan.drafter) if plan.drafter else None
    return replace(Pulled(a_fetched(plan.target), drafter), **fields)
