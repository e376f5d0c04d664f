"""Keeps a training's state in one file, so that the same command goes on where it stopped.

The file is whole or not there, and belongs to one text, recipe and command. Knows nothing about what is trained.
"""

from __future__ import annotations

import hashlib
import io
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from localspec.core.errors import FULL, LocalspecError
from localspec.core.whole_file import write_whole

SAVE_EVERY_SECONDS, RETRY_SECONDS = 120.0, 10.0


def fingerprint(*parts: object) -> str:
    """The same for the same parts."""
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()


class Keeper:
    """Keeps the state file of one training, and whether to stop."""

    def __init__(self, folder: Path, training: str, command: str) -> None:
        self.file, self.training, self.command = folder / "training.pt", training, command
        self.saved, self.kept, self.stopping = time.monotonic(), "nothing yet", False

    def load(self) -> dict[str, Any]:  # Any: states of several kinds
        """Reads the saved state, empty at the start; refuses another training's."""
        if not self.file.exists():
            return {}
        try:
            state: dict[str, Any] = torch.load(self.file, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file makes torch raise anything
            raise LocalspecError(f"{self.file} cannot be read. Delete it to start again.") from error
        if state.pop("training", None) != self.training:
            raise LocalspecError(
                f"{self.file} is the state of another training (another text, recipe, seed, device, or number of steps "
                "or threads). "
                "Give the command that began it, or delete the file to start again."
            )
        self.kept = f"the training up to {state['where']}"
        return state

    def save(self, state: dict[str, Any], where: str) -> None:  # Any: states of several kinds
        """Replaces what was kept."""
        content = io.BytesIO()  # torch's own writer turns a full disk into an error without a reason
        torch.save({**state, "where": where, "training": self.training}, content)
        self.write(self.file, lambda: write_whole(self.file, content.getvalue()))
        self.saved, self.kept = time.monotonic(), f"the training up to {where}"

    @property
    def outlook(self) -> str:
        """A sentence that names the state file and the command to continue."""
        return f"{self.file} keeps {self.kept}; go on with: {self.command}"

    def is_due(self) -> bool:
        """Whether it is time to save again, or to stop."""
        return self.stopping or time.monotonic() - self.saved > SAVE_EVERY_SECONDS

    def remove(self) -> None:
        """All is done."""
        self.file.unlink(missing_ok=True)

    def write(self, what: Path, attempt: Callable[[], object]) -> None:
        """Waits while the disk is full, since what was trained is nowhere else; another failure is one sentence about
        what is kept and how to go on."""
        while True:
            try:
                attempt()
                return
            except OSError as error:
                fault = f"Cannot write {what}: {error.strerror or error}. {self.file} keeps {self.kept}"
                if error.errno not in FULL or self.stopping:
                    remedy = "make room" if error.errno in FULL else "mend that"
                    raise LocalspecError(f"{fault}; {remedy} and go on with: {self.command}") from None
            again = f"Make room: it is tried again every {RETRY_SECONDS:.0f} seconds."
            print(f"{fault}. {again}", file=sys.stderr, flush=True)
            time.sleep(RETRY_SECONDS)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl+C waits for the end of the step, so that what is saved is sound; a second one does not wait."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        if self.stopping:
            raise KeyboardInterrupt
        self.stopping = True
