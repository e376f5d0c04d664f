"""What is found out about a machine: frozen records, printed as they are with --json. A `fault` is "" where all is
well. Knows nothing about how it is found out."""

from __future__ import annotations

from typing import Literal

from localspec.core.events import Record
from localspec.core.nvidia import Driver

Level = Literal["warning", "error"]
Source = Literal["HF_TOKEN", "file"]


class Package(Record, frozen=True):
    """`version` is None where it is not installed; `wanted` are the versions that localspec asks for, "" for any."""

    name: str
    version: str | None
    wanted: str
    is_needed: bool


class Processor(Record, frozen=True):
    """`instructions` is the set that the CPU engine takes, `choices` are those it could take; `vnni` and `amx` are the
    features of these families that the processor has, in LLVM's names."""

    name: str
    physical_cores: int
    usable_threads: int
    instructions: str | None = None
    choices: tuple[str, ...] = ()
    vnni: tuple[str, ...] = ()
    amx: tuple[str, ...] = ()
    read_gbs: float | None = None
    fault: str = ""


class Memory(Record, frozen=True):
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
    """`cuda` and `rocm` are the versions it was built for."""

    cuda: str | None = None
    rocm: str | None = None
    devices: tuple[Device, ...] = ()
    fault: str = ""


class Bitsandbytes(Record, frozen=True):
    """`library` is the file of its compiled code."""

    backend: str | None = None
    library: str | None = None
    fault: str = ""


class Login(Record, frozen=True):
    """Which token the Hugging Face hub would be shown; never the token."""

    source: Source | None
    hides_another: bool
    is_offline: bool


class Terminal(Record, frozen=True):
    """`tells_shift_enter` is None where nobody can be asked."""

    kind: str
    columns: int
    lines: int
    tells_shift_enter: bool | None


class Folder(Record, frozen=True):
    """`variable` moves it. One that does not exist is judged by the folder it would be made in."""

    purpose: str
    path: str
    variable: str
    exists: bool
    free_bytes: int | None
    fault: str


class Kept(Record, frozen=True):
    """What localspec has stored of one kind."""

    kind: str
    files: int
    num_bytes: int


class Settings(Record, frozen=True):
    file: str
    fault: str


class Finding(Record, frozen=True):
    """Something is wrong. level: "error" where localspec cannot work with it, "warning" where it can."""

    level: Level
    message: str
    hint: str = ""


class Report(Record, frozen=True):
    localspec: str
    python: str
    system: str
    packages: tuple[Package, ...]
    processor: Processor
    memory: Memory
    torch: Torch
    driver: Driver | None
    bitsandbytes: Bitsandbytes | None
    login: Login
    terminal: Terminal
    settings: Settings
    folders: tuple[Folder, ...]
    kept: tuple[Kept, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def is_broken(self) -> bool:
        return any(finding.level == "error" for finding in self.findings)
