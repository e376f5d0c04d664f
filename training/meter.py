"""Shows a training on stderr: a bar with loss and time left, or a line now and then where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from training.train import Batch

LINE_EVERY_SECONDS = 15.0


class Meter:
    """Counts the tokens that pass through it and shows a smoothed loss."""

    def __init__(self, name: str, steps: int, done: int = 0, tokens: int = 0) -> None:
        self.name, self.steps, self.done, self.tokens, self.loss = name, steps, done, tokens, 0.0
        self.console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.task = self.progress.add_task(name, total=steps, completed=done)
        self.started = self.printed = time.monotonic()

    def __enter__(self) -> Meter:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def counted(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches, counted."""
        for batch in batches:
            self.tokens += batch.ids.numel()
            yield batch

    def report(self, step: int, loss: float) -> None:
        """One step is done."""
        self.loss = loss if step == self.done else 0.95 * self.loss + 0.05 * loss
        self.progress.update(self.task, advance=1, description=f"{self.name}  loss {self.loss:.3f}")
        now = time.monotonic()
        if not self.console.is_terminal and (now - self.printed > LINE_EVERY_SECONDS or step + 1 == self.steps):
            self.printed, left = now, (now - self.started) * (self.steps - step - 1) / (step + 1 - self.done)
            self.console.print(f"{self.name} {step + 1}/{self.steps}  loss {self.loss:.3f}  {left:.0f} s left")
