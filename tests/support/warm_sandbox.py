"""Sandboxes that start in no time (forks.py). That they can also be spawned, and what is in them then,
tests/models/test_sandbox.py and tests/attacks see.
"""

from __future__ import annotations

from tests.support import forks
from tests.support.forks import DEVNULL, PIPE, TimeoutExpired

__all__ = ["DEVNULL", "PIPE", "Popen", "TimeoutExpired"]
SERVER = forks.Server("localspec.models.sandbox_process", __name__)


class Popen(forks.Fork):
    """In place of subprocess.Popen where the sandbox starts its process."""

    def __init__(self, _command: list[str], *, env: dict[str, str], pass_fds: tuple[int, ...], **_streams: int) -> None:
        super().__init__(SERVER, Sandboxed(), env, *pass_fds)


class Sandboxed:
    def main(self, *note: int) -> None:
        from localspec.models.sandbox_process import main

        main(*note)
