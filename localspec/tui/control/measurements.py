"""The chat's measurements: the memory a model needs, and how fast it is."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from textual.worker import WorkerError

from localspec.core.errors import LocalspecError
from localspec.core.events import Loading
from localspec.tui.control.bench_run import as_text, command, measured, progress
from localspec.tui.control.models import Models
from localspec.tui.control.parts import ChatParts

BENCHING = "measuring: {stop} cancels and loads the model again"
ENDS = "{stop} cancels"
ONLY_PLAIN = "Nothing drafts for this model, so only plain decoding is measured. {spec} shows what could draft."
NOT_NOW = "Wait until the model is loaded and the answer has ended."
FIT = "Write /fit, or /fit TOKENS for another context length."


class Measuring:
    """Runs the bench and the memory report. No model is loaded while the bench runs: it needs the memory and the
    processor."""

    def __init__(self, parts: ChatParts, models: Models) -> None:
        self.state, self.feedback, self.engine, self.work = parts.state, parts.feedback, parts.engine, parts.work
        self.tuning, self.models = parts.tuning, models

    # --- /fit

    def fit(self, argument: str) -> None:
        typed = argument.replace(",", "").replace("_", "")
        if argument and not typed.isdecimal():
            self.feedback.refuse(FIT)
        else:
            look = partial(self.look_what_fits, int(typed) if typed else None, self.feedback.command)
            self.work(look, "fit", exclusive=True)

    async def look_what_fits(self, context: int | None, typed: str) -> None:
        from localspec.tui.control.fit_report import what_fits  # imports psutil

        load, held, gpu = self.tuning.load, self.state.held_bytes, self.state.gpu_bytes
        look = partial(what_fits, load, context, held_bytes=held, gpu_bytes=gpu)
        try:
            await self.feedback.note(await asyncio.to_thread(look))
        except LocalspecError as fault:
            self.feedback.give_back(typed)
            self.feedback.warn(fault)

    # --- /bench

    async def bench(self) -> None:
        if self.state.phase not in {"idle", "unloaded"}:
            self.feedback.refuse(NOT_NOW)
            return
        if self.state.spec is not None and self.state.spec.kind == "off":
            await self.feedback.note(self.feedback.with_keys(ONLY_PLAIN))
        if self.state.phase == "idle":
            await self.models.unload()
        self.state.enter("benchmarking", self.feedback.with_keys(BENCHING))
        self.state.bench = self.work(self.run_bench, "bench")

    async def run_bench(self) -> None:
        try:
            await self.feedback.note(as_text(await measured(command(self.tuning.load), self.show_progress)))
        except LocalspecError as fault:
            self.feedback.warn(fault)
        self.end_bench()

    def show_progress(self, event: Loading) -> None:
        if self.state.phase == "benchmarking":
            self.state.enter("benchmarking", progress(event, self.feedback.with_keys(ENDS)))

    async def stop_bench(self) -> None:
        """The memory that it took is free before anything is loaded."""
        if self.state.bench is not None:
            if not self.state.bench.is_cancelled:  # who leaves cancels all
                self.state.bench.cancel()
            with suppress(WorkerError):
                await self.state.bench.wait()

    async def leave_bench(self) -> None:
        await self.stop_bench()
        self.end_bench()

    def end_bench(self) -> None:
        self.state.bench = None
        if self.state.phase == "benchmarking":  # else another model is on its way
            self.engine.load()
