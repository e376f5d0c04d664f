"""Hub's processes that start in no time (forks.py). That they can also be spawned, tests/hub/test_child.py sees."""

from __future__ import annotations

import importlib
import os
import sys

from tests.support import forks
from tests.support.forks import PIPE

__all__ = ["PIPE", "Popen"]
QUESTIONS = ("plan", "search", "remote_fit", "remote_pair", "deletion")  # not the fetcher, which sets a constant
SERVER = forks.Server(
    *(f"localspec.hub.{name}" for name in ("child", *QUESTIONS)),
    *("huggingface_hub.hf_api", "huggingface_hub._snapshot_download", __name__),
)


class Popen(forks.Fork):
    """In place of subprocess.Popen where the hub's process is started."""

    def __init__(self, command: list[str], *, env: dict[str, str], **_streams: int) -> None:
        super().__init__(SERVER, Child(command[1:]), env)


class Child:
    def __init__(self, words: list[str]) -> None:
        self.words = words

    def main(self) -> None:
        from huggingface_hub import constants

        from localspec.hub.child import main

        os.setsid()
        importlib.reload(constants)  # the library has read another environment
        sys.argv = self.words[1:]
        main()
