"""The report on a machine: frozen records, printed as they are by --json. A `fault` is "" where there is none.

Knows nothing about how the machine is examined."""

from __future__ import annotations

from typing import Literal

from localspec.core.events import Record
from localspec.core.nvidia import Driver

Level = Literal["warning", "error"]
Source = Literal["HF_TOKEN", "file"]


class Package(Record, frozen=True):
    """A package. `version` is None if it is not installed; `wanted` are the supported versions, "" for any."""

    name: str
    version: str | None
    wanted: str
    is_needed: bool


class Processor(Record, frozen=True):
    """The processor. `instructions` is the set that the CPU engine uses, `choices` all that it could use; `vnni` and
    `amx` are the processor's features of these families, in LLVM's names."""

    name: str
    physical_cores: int
    usable_threads: int
    instructions: str | None = None
    choices: tuple[str, ...] = ()
    vnni: tuple[str, ...] = ()
    amx: tuple[str, ...] = ()
    read_gbs: float | None = None
    fault: str = ""


class MemoryStatus(Record, frozen=True):
    total_bytes: int
    free_bytes: int


class Device(Record, frozen=True):
    """A GPU that torch can use."""

    name: str
    title: str
    total_bytes: int | None = None
    free_bytes: int | None = None
    compute_capability: str | None = None
    read_gbs: float | None = None
    fault: str = ""


class Torch(Record, frozen=True):
    """The torch package. `cuda` and `rocm` are the versions it was built for."""

    cuda: str | None = None
    rocm: str | None = None
    devices: tuple[Device, ...] = ()
    fault: str = ""


class Bitsandbytes(Record, frozen=True):
    """The bitsandbytes package. `library` is the file of its compiled code."""

    backend: str | None = None
    library: str | None = None
    fault: str = ""


class LoginStatus(Record, frozen=True):
    """Names the source of the Hugging Face token; never the token itself. `endpoint`: the hub that gets it."""

    source: Source | None
    hides_another: bool
    is_offline: bool
    endpoint: str


class Terminal(Record, frozen=True):
    """The terminal. `tells_shift_enter` is None where it cannot be queried."""

    kind: str
    columns: int
    lines: int
    tells_shift_enter: bool | None


class FolderStatus(Record, frozen=True):
    """A folder of localspec, which `variable` moves. A missing one is judged by the nearest one above it."""

    purpose: str
    path: str
    variable: str
    exists: bool
    free_bytes: int | None
    fault: str


class StoredFiles(Record, frozen=True):
    """The files of one kind that localspec has stored."""

    kind: str
    files: int
    num_bytes: int


class SettingsStatus(Record, frozen=True):
    file: str
    fault: str


class Finding(Record, frozen=True):
    """A problem. level: "error" where localspec cannot work, "warning" where it can."""

    level: Level
    message: str
    hint: str = ""


class DoctorReport(Record, frozen=True):
    localspec: str
    python: str
    system: str
    packages: tuple[Package, ...]
    processor: Processor
    memory: MemoryStatus
    torch: Torch
    driver: Driver | None
    bitsandbytes: Bitsandbytes | None
    login: LoginStatus
    terminal: Terminal
    settings: SettingsStatus
    folders: tuple[FolderStatus, ...]
    kept: tuple[StoredFiles, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def is_broken(self) -> bool:
        return any(finding.level == "error" for finding in self.findings)
