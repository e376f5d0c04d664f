"""A report as lines of text, 80 columns wide; problems come last."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from localspec.cli.doctor.records import Device, DoctorReport, Finding, FolderStatus, Processor, StoredFiles
from localspec.core.sanitize import one_line

WIDTH = 80
LABEL = 14
DOT, SPACE = " · ", "\N{NO-BREAK SPACE}"
NEWLINE_KEYS = {True: "Shift+Enter, Alt+Enter, Ctrl+J", False: "Alt+Enter, Ctrl+J (not Shift+Enter)"}


def as_text(report: DoctorReport) -> str:
    body = [line for label, parts in rows(report) for line in row(label, parts)]
    problems = [line for finding in report.findings for line in paragraph(finding)]
    return "\n".join([*body, *leaving(report), "", *(problems or ["No problems found."])])


def rows(report: DoctorReport) -> Iterator[tuple[str, Iterable[str]]]:
    """Each row: a label and its parts."""
    yield "localspec", (report.localspec, f"Python {report.python}", report.system)
    yield "packages", (f"{each.name} {each.version}" for each in report.packages if each.version)
    yield "not installed", (each.name for each in report.packages if not each.version)
    yield "processor", processor(report.processor)
    yield "instructions", instructions(report.processor)
    yield "memory", memory(report.memory.total_bytes, report.memory.free_bytes, report.processor.read_gbs)
    for device in report.torch.devices:
        yield device.name, gpu(device)
    if not report.torch.devices:
        yield "gpu", ("none usable by torch",)
    yield "driver", driver(report)
    if report.bitsandbytes:
        found = report.bitsandbytes
        yield "bitsandbytes", (found.backend or "no backend", found.library or "no compiled library")
    yield "hub login", login(report)
    yield "terminal", terminal(report)
    for folder in report.folders:
        yield folder.purpose, location(folder)
    yield "stored", map(stored, report.kept)


def processor(found: Processor) -> tuple[str, ...]:
    return found.name, count(found.physical_cores, "core"), count(found.usable_threads, "usable thread")


def instructions(found: Processor) -> Iterator[str]:
    yield found.instructions or "none usable"
    yield f"of {', '.join(found.choices)}" if found.choices else "the CPU engine is not installed"
    yield f"VNNI: {', '.join(found.vnni) or 'no'}"
    yield f"AMX: {', '.join(found.amx) or 'no'}"


def memory(total: int | None, free: int | None, read_gbs: float | None) -> Iterator[str]:
    if total is not None and free is not None:
        yield f"{total / 1e9:.1f} GB, {free / 1e9:.1f} GB free"
    if read_gbs is not None:
        yield f"reads {read_gbs:.3g} GB/s"


def gpu(found: Device) -> Iterator[str]:
    yield found.title
    yield from memory(found.total_bytes, found.free_bytes, found.read_gbs)
    if found.compute_capability:
        yield f"compute capability {found.compute_capability}"


def driver(report: DoctorReport) -> Iterator[str]:
    yield f"NVIDIA {report.driver.version}, CUDA {report.driver.cuda}" if report.driver else "no NVIDIA driver"
    if report.torch.cuda or report.torch.rocm:
        yield f"torch for {f'CUDA {report.torch.cuda}' if report.torch.cuda else f'ROCm {report.torch.rocm}'}"
    elif not report.torch.fault:
        yield "torch without CUDA"


def login(report: DoctorReport) -> Iterator[str]:
    sources = {"HF_TOKEN": "token from HF_TOKEN", "file": "logged in", None: "none; for gated models: hf auth login"}
    yield sources[report.login.source]
    if report.login.is_offline:
        yield "offline (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE)"


def leaving(report: DoctorReport) -> list[str]:
    """What leaves the machine, as SECURITY.md promises it."""
    if report.login.is_offline:
        words = "nothing to the hub, since it is off"
    else:
        words = f"names of repositories and files, and words searched for, to {one_line(report.login.endpoint)}"
        words += "; the token to it alone" if report.login.source else ""
    words += "; a chat with a server, to that server"
    return wrapped(words, first="leaves the machine: ", rest=" " * LABEL)


def terminal(report: DoctorReport) -> Iterator[str]:
    found = report.terminal
    yield found.kind or "unknown"
    yield f"{found.columns}×{found.lines}"
    if found.tells_shift_enter is not None:
        yield f"new line: {NEWLINE_KEYS[found.tells_shift_enter]}"


def location(folder: FolderStatus) -> Iterator[str]:
    yield at_home(folder.path)
    yield "not writable" if folder.fault else "writable" if folder.exists else "not created yet"
    if folder.free_bytes is not None:
        yield f"{folder.free_bytes / 1e9:.1f} GB free"


def count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def stored(found: StoredFiles) -> str:
    return f"{found.kind} {found.num_bytes / 1e6:.1f} MB"


def at_home(path: str) -> str:
    try:
        return f"~/{Path(path).relative_to(Path.home()).as_posix()}"
    except (ValueError, RuntimeError):  # elsewhere, or there is no home
        return path


def row(label: str, parts: Iterable[str]) -> list[str]:
    """A row as lines: broken between parts, and inside one only if it is longer than a line; a path never is."""
    shown = [one_line(part) for part in parts]
    width = WIDTH - LABEL
    joined = DOT.join(part.replace(" ", SPACE) if len(part) <= width - len(DOT) else part for part in shown)
    return wrapped(joined, first=label.ljust(LABEL), rest=" " * LABEL) if shown else []


def paragraph(finding: Finding) -> list[str]:
    first = f"{finding.level}: "
    rest = " " * len(first)
    message = wrapped(one_line(finding.message), first=first, rest=rest)
    return message + wrapped(one_line(finding.hint), first=rest, rest=rest) if finding.hint else message


def wrapped(text: str, *, first: str, rest: str) -> list[str]:
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(SPACE, " ") for line in lines]
