"""Finds bitsandbytes' compiled library in a process of its own: loading it may log tracebacks and crash."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from localspec.cli.doctor.packages import installed
from localspec.cli.doctor.records import Bitsandbytes
from localspec.cli.doctor.words import sentence_of, short

PATIENCE_SECONDS = 30.0  # torch from a cold disk


@contextmanager
def probing() -> Iterator[Callable[[], Bitsandbytes | None]]:
    """Starts the probe; yields a function that waits for its answer, None where bitsandbytes is not installed."""
    if installed("bitsandbytes") is None:
        yield lambda: None
        return
    try:
        child = start()
    except OSError as fault:
        failed = Bitsandbytes(fault=sentence_of(fault))
        yield lambda: failed
        return
    with child:
        try:
            yield lambda: answer(child)
        finally:
            child.kill()  # it still runs if its answer was not waited for


def start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "localspec.cli.doctor.probe"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)


def answer(child: subprocess.Popen[bytes]) -> Bitsandbytes:
    try:
        stdout, stderr = child.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        return Bitsandbytes(fault=f"no answer within {PATIENCE_SECONDS:.0f} seconds")
    try:
        return msgspec.json.decode(last_line(stdout), type=Bitsandbytes)
    except msgspec.DecodeError:
        reason = last_line(stderr).decode(errors="replace")
        return Bitsandbytes(fault=short(reason) or f"its process ended with {child.returncode}")


def last_line(output: bytes) -> bytes:
    return output.strip().rpartition(b"\n")[2]


def environment() -> dict[str, str]:
    """The child's environment: it imports this package, and downloads nothing."""
    package = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(part for part in (package, os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
