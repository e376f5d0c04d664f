"""A server in a process of its own, for as long as something is measured with it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from time import sleep
from urllib.request import urlopen

from localspec.core.errors import UsageError

PATIENCE = 300.0  # seconds, for a start or an answer


@contextmanager
def served(command: Sequence[str], url: str) -> Iterator[None]:
    """The server that `command` starts, until it is no longer needed; entered when it is healthy."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(int(PATIENCE * 2)):
            sleep(0.5)
            if process.poll() is not None:
                raise UsageError(f"'{' '.join(command[:3])} …' ended with {process.returncode}.")
            with suppress(OSError), urlopen(f"{url}/health", timeout=5):  # also an answer of 503
                break
        yield
    finally:
        process.terminate()
        process.wait()
