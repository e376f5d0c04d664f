"""The chat as the benchmark plays it: a model opened by name, and what every answer cost the screen told on a pipe.

It saves what is said as the chat does; whoever starts it says in which folder.

python -m localspec.tui.measured OPENER MODEL FORMAT TOKENS FD. Knows no terminal and no figures but its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from time import monotonic, process_time
from typing import Any  # Any: JSON

from localspec.events import Notice, Step
from localspec.history import Answered, NewChat, Said, Writer
from localspec.requests import LoadRequest
from localspec.tui.app import ChatApp, collect_between_answers
from localspec.tui.scribe import Scribe
from localspec.worker import EngineProcess

BEAT_SECONDS = 0.1  # more often than a frame is drawn; to look costs the model too


class MeasuredChat(ChatApp):
    """Also a heart that beats: as late as a beat comes, so long the screen was busy and could not take a key."""

    def __init__(self, request: LoadRequest, opener: str, tell: Callable[..., None]) -> None:
        super().__init__(lambda: EngineProcess(request, opener), scribe=Scribe(self, NewChat(request.model)))
        self.writer = Writer()
        self.tell_figures = tell
        self.late_ms: list[float] = []
        self.cpu_before = 0.0

    def on_mount(self) -> None:
        self.run_worker(self.beat())

    async def beat(self) -> None:
        while self.chat.phase == "loading":
            await asyncio.sleep(BEAT_SECONDS)
        self.tell_figures(ready=True)
        while True:
            before = monotonic()
            await asyncio.sleep(BEAT_SECONDS)
            if self.chat.answering:
                self.late_ms.append(1000 * (monotonic() - before - BEAT_SECONDS))
            else:
                self.late_ms, self.cpu_before = [], process_time()

    # --- the paper on which its scribe writes

    def start(self, tell: Callable[[Notice], object]) -> None:
        self.writer.start(tell)

    def steps(self, message_id: int) -> tuple[Step, ...]:
        return self.writer.steps(message_id)

    def post(self, said: Said) -> None:
        self.writer.post(said)
        if isinstance(said, Answered) and said.answer.status != "partial":
            stats, cpu = said.answer.generation.stats, process_time() - self.cpu_before
            engine_seconds = (stats.prompt_ms + stats.predicted_ms) / 1000
            self.tell_figures(
                tokens=stats.predicted_n, cpu_seconds=cpu, engine_seconds=engine_seconds, late_ms=self.late_ms
            )


def main(opener: str, model: str, kind: str, tokens: str, fd: str) -> None:
    def tell(**told: Any) -> None:
        os.write(int(fd), f"{json.dumps(told)}\n".encode())

    chat = MeasuredChat(LoadRequest(model, quant=kind, ctx=int(tokens)), opener, tell)
    collect_between_answers()
    try:
        chat.run()
    finally:
        chat.writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
