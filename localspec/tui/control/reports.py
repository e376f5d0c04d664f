"""The chat's reports: figures, the loaded model, licences, where the log is."""

from __future__ import annotations

import asyncio
import os

from localspec.core.events import Stats
from localspec.runtime.failures import log_file
from localspec.tui.chat.licence import licences
from localspec.tui.chat.report import answer_report, load_report
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.state import AWAY

NOT_MEASURED = "No answer has been measured yet."
NO_LOG = "There is no log: its folder cannot be written. Set LOCALSPEC_STATE_DIR to another."


class Reports:
    """Each is a note in the transcript."""

    def __init__(self, parts: ChatParts) -> None:
        self.state, self.feedback, self.recorder = parts.state, parts.feedback, parts.recorder
        self.conversation = parts.conversation

    async def stats(self) -> None:
        found = self.last_stats
        await self.feedback.note(answer_report(found) if found is not None else NOT_MEASURED)

    @property
    def last_stats(self) -> Stats | None:
        """What was measured last; with a model that was loaded since, what is kept with the last answer."""
        if self.state.status.stats.predicted_n:
            return self.state.tally.stats
        kept = [one.made.stats for one in self.conversation.branch if one.made is not None]
        return kept[-1] if kept and kept[-1].predicted_n else None

    async def show(self) -> None:
        state = self.state
        if state.model is None or state.spec is None or state.phase in AWAY:
            self.feedback.hint("Nothing is loaded.")
        else:
            await self.feedback.note(load_report(state.model, state.spec, state.tally.stats))

    async def license(self) -> None:
        await self.feedback.note(await asyncio.to_thread(licences, self.recorder.model_key))

    async def log(self) -> None:
        log = await asyncio.to_thread(log_file)
        await self.feedback.note(NO_LOG if log == os.devnull else f"The engine's log: {log}")
