"""What the chat measures beside the conversation: what a model needs, and how fast it is."""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from contextlib import suppress
from functools import partial

from textual import work
from textual.worker import Worker, WorkerError

from localspec.core.errors import LocalspecError
from localspec.core.events import Loading, Notice
from localspec.tui.control.bench_run import as_text, command, measured, progress
from localspec.tui.control.settings import TunableScreen
from localspec.tui.control.state import Phase
from localspec.tui.keys.key_names import with_keys
from localspec.tui.terminal.timer import once
from localspec.tui.transcript.markers import Note

BENCHING = "measuring: {stop} ends it and loads the model again"
ENDS = "{stop} ends it"
NOT_NOW = "That must wait until the model is loaded and the answer has ended."
FIT = "Write /fit, or /fit TOKENS: how long a context is to be."


class MeasuringScreen(TunableScreen):
    """While the bench runs nothing is loaded here: it has the memory and the processor to itself."""

    bench: Worker[None] | None = None
    rest: TimerHandle | None = None

    # --- /fit

    def command_fit(self, argument: str) -> None:
        typed = argument.replace(",", "").replace("_", "")
        if argument and not typed.isdecimal():
            self.refuse(FIT)
        else:
            self.look_what_fits(int(typed) if typed else None, self.obeyed)

    @work(group="fit", exclusive=True)
    async def look_what_fits(self, context: int | None, typed: str) -> None:
        from localspec.tui.control.fit_report import fit_report  # imports psutil

        load, held, gpu = self.tuning.load, self.held_bytes, self.gpu_bytes
        look = partial(fit_report, load, context, held_bytes=held, gpu_bytes=gpu)
        try:
            await self.show(Note(await asyncio.to_thread(look)))
        except LocalspecError as fault:
            self.give_back(typed)
            self.tell(Notice("warning", fault.code, fault.message, fault.hint))

    # --- /bench

    async def command_bench(self, _: str) -> None:
        if self.phase not in {"idle", "unloaded"}:
            self.refuse(NOT_NOW)
            return
        if self.phase == "idle":
            await self.unload()
        self.enter("benchmarking", with_keys(self, BENCHING))
        self.bench = self.run_bench()

    @work(group="bench")
    async def run_bench(self) -> None:
        try:
            await self.show(Note(as_text(await measured(command(self.tuning.load), self.show_progress))))
        except LocalspecError as fault:
            self.tell(Notice("warning", fault.code, fault.message, fault.hint))
        self.end_bench()

    def show_progress(self, event: Loading) -> None:
        if self.phase == "benchmarking":
            self.enter("benchmarking", progress(event, with_keys(self, ENDS)))

    async def stop_bench(self) -> None:
        """The memory that it took is free before anything is loaded."""
        if self.bench is not None:
            if not self.bench.is_cancelled:  # who leaves cancels all
                self.bench.cancel()
            with suppress(WorkerError):
                await self.bench.wait()

    async def leave_bench(self) -> None:
        await self.stop_bench()
        self.end_bench()

    def end_bench(self) -> None:
        self.bench = None
        if self.phase == "benchmarking":  # else another model is on its way
            self.load()

    @property
    def answering(self) -> bool:
        return self.bench is not None or super().answering

    def stop_answer(self) -> None:
        if self.bench is not None:
            self.call_later(self.leave_bench)
        else:
            super().stop_answer()

    # --- rest

    def enter(self, phase: Phase, words: str) -> None:
        """A chat in which nothing happens for long gives the memory back."""
        super().enter(phase, words)
        if self.rest is not None:
            self.rest.cancel()
        seconds = self.tuning.config.engine.idle_seconds
        self.rest = once(self, seconds, self.unload) if phase == "idle" and seconds is not None else None
