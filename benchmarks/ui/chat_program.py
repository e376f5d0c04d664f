"""The chat as the benchmark plays it: a model opened by name; what every answer cost the screen goes to a pipe.

It saves the chat in the folder that the environment names.

python -m benchmarks.ui.chat_program OPENER MODEL FORMAT TOKENS [--downloading] FD. Knows no terminal.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from time import process_time
from typing import Any  # Any: JSON

from benchmarks.timed_chat import TimedChat
from localspec.core.events import Notice, Step
from localspec.core.requests import LoadRequest, WeightOptions
from localspec.history import Answered, NewChat, Update, Writer
from localspec.hub import process
from localspec.hub.queue import DownloadQueue
from localspec.hub.records import PullRequest
from localspec.runtime.worker import EngineProcess
from localspec.tui.chat.recorder import HistoryRecorder
from localspec.tui.screens.models import ModelsScreen
from localspec.tui.terminal.collector import collect_at_rest

BUSY_HUB = "benchmarks.ui.busy_hub"
LOOK_SECONDS = 0.1  # to look costs the model too
LATE_PERCENT = 50  # from here another download is begun: none is complete before an answer is


class MeasuredChat(TimedChat):
    """Counts from the beginning of an answer, which it looks for now and then. `downloads`: with a download that
    reports its progress meanwhile."""

    def __init__(self, request: LoadRequest, opener: str, tell: Callable[..., None], *, downloads: bool) -> None:
        super().__init__(lambda: EngineProcess(request, opener), recorder=HistoryRecorder(self, NewChat(request.model)))
        self.writer = Writer()
        self.tell_figures, self.downloads = tell, downloads
        self.cpu_before = 0.0
        self.changes, self.numbers = 0, count()

    def on_mount(self) -> None:
        self.run_worker(self.look())

    async def look(self) -> None:
        while self.chat.state.phase == "loading":
            await asyncio.sleep(LOOK_SECONDS)
        self.tell_figures(ready=True)
        words, watched = "", False
        while True:
            if self.downloads:
                keep_downloading(self.chat.library.downloads.queue, self.numbers)
            self.changes += self.chat.state.download != words
            words = self.chat.state.download
            if not self.chat.state.answering:
                self.cpu_before, self.changes = process_time(), 0
            if not self.chat.state.answering or self.watches != watched:
                self.take_frames()
            watched = self.watches
            await asyncio.sleep(LOOK_SECONDS)

    @property
    def watches(self) -> bool:
        """Whether the list of downloads stands over the chat: its frames count from there."""
        return isinstance(self.screen, ModelsScreen) and self.screen.strip.tab == "downloads"

    # --- the paper on which its recorder writes

    def start(self, tell: Callable[[Notice], object]) -> None:
        self.writer.start(tell)

    def steps(self, message_id: int) -> tuple[Step, ...]:
        return self.writer.steps(message_id)

    @property
    def in_trouble(self) -> bool:
        return self.writer.in_trouble

    def post(self, said: Update) -> None:
        self.writer.post(said)
        if isinstance(said, Answered) and said.answer.status != "partial":
            stats, cpu = said.answer.generation.stats, process_time() - self.cpu_before
            self.tell_figures(
                tokens=stats.predicted_n,
                cpu_seconds=cpu,
                engine_seconds=(stats.prompt_ms + stats.predicted_ms) / 1000,
                frames_ms=self.frames.wall,
                longest_ms=self.frames.longest,
                changes=self.changes,
            )


def keep_downloading(queue: DownloadQueue, numbers: Iterator[int]) -> None:
    """Let one be far from its end: where it is not, another takes its turn."""
    item = next(iter(queue.items), None)
    if item is None or item.percent >= LATE_PERCENT:
        if item is not None:
            queue.drop(item.key)
        queue.add(PullRequest(f"org/model-{next(numbers)}"))


def main(opener: str, model: str, kind: str, tokens: str, *rest: str) -> None:
    *downloading, fd = rest

    def tell(**figures: Any) -> None:
        os.write(int(fd), f"{json.dumps(figures)}\n".encode())

    process.CHILD = BUSY_HUB
    request = LoadRequest(model, weights=WeightOptions(kind, ctx=int(tokens)))
    chat = MeasuredChat(request, opener, tell, downloads=bool(downloading))
    collect_at_rest()
    try:
        chat.run()
    finally:
        chat.writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
