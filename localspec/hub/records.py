"""What is asked of the hub's process, and what it answers: records that cross a pipe and are printed by --json.

Sizes are in bytes. Knows nothing about how any of it is found out.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from localspec.core.events import DraftLength, Event, Failure, Notice, Record
from localspec.core.requests import WeightOptions
from localspec.loading.fit import FitReport
from localspec.runtime.pairs import DrafterCandidate, PairVerdict

Gate = Literal["open", "granted", "logged-out", "no-request", "awaiting", "scope"]
Stage = Literal["resolving", "headers", "checking", "downloading", "linking"]
STAGES: dict[str, str] = {
    "resolving": "asking the hub",
    "headers": "reading headers",
    "checking": "checking files",
    "downloading": "downloading",
    "linking": "finishing",
}


class Licence(Record, frozen=True):
    """A licence as its repository names it: the tag ("apache-2.0"; "other" where it has a name of its own) and page."""

    tag: str = ""
    name: str = ""
    link: str = ""
    non_commercial: bool = False

    @property
    def words(self) -> str:
        named = self.name if self.tag in ("", "other") and self.name else self.tag
        return f"{named or 'not named'}{', non-commercial' if self.non_commercial else ''}"


class Access(Record, frozen=True):
    """Whether this account may read a repository. `page`: where a person asks for it; `account`: "" if logged out;
    `by_hand`: the authors review each request; `hides_login`: HF_TOKEN overrides another, saved login."""

    gate: Gate = "open"
    page: str = ""
    account: str = ""
    by_hand: bool = False
    hides_login: bool = False

    @property
    def may_read(self) -> bool:
        return self.gate in ("open", "granted")


class RemoteFile(Record, frozen=True):
    """A file of a repository. `sha256` is "" for a small one, which git's own `blob_id` names. `here`: bytes of it that
    are on disk already."""

    path: str
    size: int
    sha256: str = ""
    blob_id: str = ""
    here: int = 0


class DraftOffer(Record, frozen=True):
    """The drafter that goes with a model. `kind`: its row in DRAFTERS, or "none" with the reason in `detail`; an early
    exit has its layer and the source of that number, a draft model its repository and verdict."""

    UNTESTED: ClassVar = "untested start: a quarter of its layers"  # of a layer without a source

    kind: str
    name: str = ""
    exit_layer: int = 0
    k: DraftLength = "auto"
    source: str = ""
    verdict: PairVerdict | None = None
    detail: str = ""


class Repository(Record, frozen=True):
    """One repository at one commit, as far as it matters before a download. `files` are those that would be fetched,
    `flagged` those of them that the hub's scanners report."""

    repo: str
    revision: str
    commit: str
    files: tuple[RemoteFile, ...]
    licence: Licence
    access: Access
    parameters: int = 0
    dtype: str = ""
    model_type: str = ""
    chat_template: bool = False
    flagged: tuple[str, ...] = ()

    @property
    def num_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def bytes_here(self) -> int:
        return sum(file.here for file in self.files)

    @property
    def bytes_left(self) -> int:
        return self.num_bytes - self.bytes_here


class Meanwhile(Record, frozen=True):
    """What may be run while a gate is closed: an ungated target, its drafter ("" for its own early exit), how it fits,
    and whether all of it is on this machine."""

    target: str
    drafter: str
    word: str
    is_here: bool = False


class PullRequest(Record, frozen=True):
    """A repository to fetch. `revision`: a branch, tag or commit, "" for main. `variant`: of a GGUF repository, a
    quantisation ("Q4_K_M") or a file. `draft`: "auto", "none" or a repository. `key`: the name in models.toml.
    `repairs`: only files of a commit that is here, which was agreed to before, whatever named it."""

    repo: str
    revision: str = ""
    variant: str = ""
    draft: str = "auto"
    key: str = ""
    weights: WeightOptions = WeightOptions()
    xet: bool = False
    repairs: bool = False

    @property
    def name(self) -> str:
        """The model as it is typed."""
        at, behind = f"@{self.revision}" if self.revision else "", f":{self.variant}" if self.variant else ""
        return f"{self.repo}{at}{behind}"


class PullPlan(Event, frozen=True, tag="plan"):
    """Everything a person wants to know before the download. `fit` None: not even headers may be read (a gate).
    `preset`: the chat template that models.toml names, where that is used, and "none" for a model without one.
    `variants`: of a GGUF repository without a chosen file, each with its fit. `unloadable`: why localspec could not
    load it, found from its headers. `meanwhile`: something else to run where the gate is closed."""

    target: Repository
    drafter: Repository | None
    offer: DraftOffer
    fit: FitReport | None
    disk_free: int
    disk_needed: int
    preset: str = ""
    variants: tuple[FitReport, ...] = ()
    unloadable: str = ""
    meanwhile: Meanwhile | None = None

    @property
    def repositories(self) -> tuple[Repository, ...]:
        return (self.target, self.drafter) if self.drafter else (self.target,)

    @property
    def num_bytes(self) -> int:
        return sum(one.num_bytes for one in self.repositories)

    @property
    def bytes_left(self) -> int:
        return sum(one.bytes_left for one in self.repositories)


class Progress(Event, frozen=True):
    """How far a pull is. `repo` is fetched now; the bytes are those of the target and its drafter. `done` never falls
    and never passes `total`; `resumed`: bytes that were here at its start; `slow`: bytes come, but fewer than 100 kB a
    second, or than a tenth of the fastest that this download was."""

    repo: str
    stage: Stage
    done: int
    total: int
    resumed: int = 0
    file: str = ""
    bytes_per_second: float | None = None
    eta_s: float | None = None
    slow: bool = False


class Retrying(Event, frozen=True):
    """The line is cut or silent; the next try begins in `seconds`. All that came is kept."""

    repo: str
    reason: str
    seconds: float


class Fetched(Event, frozen=True):
    """A repository is complete, checked and linked, and refs/main names it. `checked`: files with the hub's sha256."""

    repo: str
    commit: str
    folder: str
    num_bytes: int
    checked: int


class Pulled(Event, frozen=True):
    """Everything that was asked for is here: the target and, if any, its drafter. `file`: of a GGUF repository."""

    target: Fetched
    drafter: Fetched | None = None
    file: str = ""


class SearchRequest(Record, frozen=True):
    """A search of the hub. `cursor`: of the page before, for the next one. `drafter_for`: a target's repository, whose
    possible drafters are wanted."""

    words: str = ""
    gguf: bool = False
    gated: bool | None = None
    sort: Literal["trending", "downloads", "likes", "created"] = "trending"
    limit: int = 30
    cursor: str = ""
    drafter_for: str = ""


class SearchRow(Record, frozen=True):
    """A repository in a list. Its size and fit are estimates from the number of parameters until headers are read;
    0 and "" where not even that is known."""

    repo: str
    num_bytes: int
    fit: str
    licence: Licence
    gated: Literal["", "auto", "manual"]
    downloads: int
    parameters: int = 0
    dtype: str = ""
    pair: str = ""
    """The drafter that goes with it, as the catalogue knows it: a repository, or one that needs none: "early exit"."""
    note: str = ""
    """Why it is not for localspec: "head for vLLM", "GGUF", "pickle only", …; "" if it is."""


class SearchPage(Event, frozen=True):
    """A page of a search's results; `cursor` "": the last."""

    rows: tuple[SearchRow, ...]
    cursor: str = ""


class FitRequest(Record, frozen=True):
    """A model's fit from its headers alone: a repository, or where only the drafter is not here, whatever names the
    model; its drafter by any name ("" for none), and how it is loaded."""

    repo: str
    revision: str = ""
    variant: str = ""
    drafter: str = ""
    weights: WeightOptions = WeightOptions()

    @property
    def name(self) -> str:
        """All of it as it is typed."""
        at, behind = f"@{self.revision}" if self.revision else "", f":{self.variant}" if self.variant else ""
        return f"{self.repo}{at}{behind}"


class FitFound(Event, frozen=True):
    """A fit, and what its headers and tokenizer files took to read."""

    report: FitReport
    bytes_read: int = 0


class PairRequest(Record, frozen=True):
    """A verdict about two models, each by any name, perhaps with @REV and :VARIANT; what is not here is read from the
    hub. Without `drafter` the candidates on this machine, or with `hub` those of the hub."""

    target: str
    drafter: str = ""
    hub: bool = False


class PairFound(Event, frozen=True):
    """The verdicts, best first."""

    candidates: tuple[DrafterCandidate, ...]


class ModelFiles(Record, frozen=True):
    """A GGUF model of a repository that has others: its files' paths there."""

    repo: str
    name: str
    paths: tuple[str, ...]


class DeletePlan(Event, frozen=True, tag="delete-plan"):
    """What deleting these cached repositories frees: blobs that other repositories share stay. `older`: repositories
    that only lose their older commits; `models`: names of GGUF models that go alone. Within `freed_bytes` are
    `unfinished_bytes`, of parts of files, `older_bytes`, which only older commits use, and `prepared_bytes`, of copies
    in the weight cache."""

    repos: tuple[str, ...]
    freed_bytes: int
    unfinished_bytes: int = 0
    shared_bytes: int = 0
    older: tuple[str, ...] = ()
    older_bytes: int = 0
    prepared_bytes: int = 0
    models: tuple[str, ...] = ()


class Deleted(Event, frozen=True):
    repos: tuple[str, ...]
    freed_bytes: int
    older: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


class Ask(msgspec.Struct, frozen=True, tag_field="op"):
    """A question to the hub's process; one at a time."""


class AskPull(Ask, frozen=True, tag="pull"):
    """Answered by Progress and a PullPlan; then the process waits for Go, and answers Progress | Retrying | Notice, a
    Fetched for each repository, and Pulled."""

    request: PullRequest


class Go(Ask, frozen=True, tag="go"):
    """The answer to a PullPlan: begin."""


class AskSearch(Ask, frozen=True, tag="search"):
    request: SearchRequest


class AskFit(Ask, frozen=True, tag="fit"):
    request: FitRequest


class AskPair(Ask, frozen=True, tag="pair"):
    request: PairRequest


class AskDelete(Ask, frozen=True, tag="delete"):
    """Answered by a DeletePlan; then the process waits for Go, and answers Deleted. Of the repositories in `older` only
    the older commits go, of those of `models` these alone."""

    repos: tuple[str, ...]
    older: tuple[str, ...] = ()
    models: tuple[ModelFiles, ...] = ()


AnyAsk = AskPull | Go | AskSearch | AskFit | AskPair | AskDelete
Found = SearchPage | FitFound | PairFound
HubAnswer = PullPlan | Progress | Retrying | Fetched | Pulled | DeletePlan | Deleted | Found | Notice | Failure
PAUSES = (PullPlan, DeletePlan)  # the process waits for Go, or for another question
LAST = (Pulled, Deleted, SearchPage, FitFound, PairFound, Failure)  # the next question may come
