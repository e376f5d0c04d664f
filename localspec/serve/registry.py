"""The servers that run on this machine: a small file each, that only its user reads; what is gone is not listed.

`ps` and `stop` read these files and ask no network. Knows no HTTP.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import msgspec
import psutil

from localspec.core import paths
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.events import Record
from localspec.core.plain_file import read_small
from localspec.core.process import STOP_SECONDS

SAME_START = 0.05  # seconds: by which two readings of a process's start may differ
TICK = 0.05


class Running(Record, frozen=True):
    """A server. `started`: of its process, which another with the same number later does not share; `state` as the
    engine's; `speculation`: the drafter and how it is used; `num_bytes`: of weights and caches, 0 while none is loaded;
    `until`: when the model is unloaded if nothing is asked, None where it stays."""

    pid: int
    started: float
    address: str
    model: str
    since: float
    state: str = "loading"
    speculation: str = ""
    quant: str = ""
    device: str = ""
    context: int = 0
    num_bytes: int = 0
    until: float | None = None
    answering: int = 0
    waiting: int = 0


DECODE = msgspec.json.Decoder(Running).decode


def own_start() -> float:
    return float(psutil.Process().create_time())


def write(server: Running) -> None:
    """Writes a server's file; one that cannot be written costs `ps` and `stop`, and not the server."""
    with suppress(OSError, UsageError):
        file = file_of(server.pid)
        part = file.with_suffix(".part")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
            opened.write(msgspec.json.encode(server))
        os.replace(part, file)


def remove(pid: int) -> None:
    with suppress(OSError, UsageError):
        file_of(pid).unlink(missing_ok=True)


def file_of(pid: int) -> Path:
    return paths.serving_dir() / f"{pid}.json"


def running() -> list[Running]:
    """The servers that are there, the oldest first; the files of others are removed."""
    found = []
    with suppress(OSError, UsageError):
        for file in sorted(paths.serving_dir().glob("*.json")):
            server = read(file)
            if server is not None and is_there(server):
                found.append(server)
            else:
                file.unlink(missing_ok=True)
    return sorted(found, key=lambda server: server.since)


def read(file: Path) -> Running | None:
    """The server of a file that is its user's alone; None for any other."""
    try:
        status = file.stat()
        is_ours = not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o077)
        return DECODE(read_small(file)) if is_ours else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def is_there(server: Running) -> bool:
    """Whether the process is the very one that wrote the file, and this user's."""
    try:
        process = psutil.Process(server.pid)
        is_ours = not hasattr(os, "getuid") or process.uids().real == os.getuid()
        ended = process.status() == psutil.STATUS_ZOMBIE
        return is_ours and not ended and abs(process.create_time() - server.started) < SAME_START
    except (psutil.Error, ValueError, OverflowError):
        return False


def stop(server: Running, *, seconds: float = STOP_SECONDS) -> None:
    """Ends a server as Ctrl+C does, and waits until it has."""
    if not is_there(server):
        return
    with suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGTERM)
    end = monotonic() + seconds
    while is_there(server):
        if monotonic() > end:
            raise LocalspecError(
                f"{server.address} did not stop in {seconds:.0f} seconds.", hint=f"End process {server.pid}."
            )
        sleep(TICK)
