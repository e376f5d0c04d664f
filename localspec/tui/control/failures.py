"""What is shown and done when an answer fails, and when the drafter, or the engine as a whole, is lost."""

from __future__ import annotations

from localspec.core.errors import ENGINE_STOPPED, ContextOverflow, RemoteError
from localspec.core.events import Failure, FinishReason, Notice
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.turns import Turns
from localspec.tui.transcript.markers import Note

DIED = f"{ENGINE_STOPPED} Press {{reload}} to load it again."
NOT_LOADED = "Not loaded: {reload} tries again, {models} another model."
NOT_REACHED = "Not connected: {reload} tries again."
KEPT = "What was written is kept: {retry} asks again, /continue goes on."
AGAIN = "{retry} asks again."
FULL = "The context is full: this answer cannot continue."
LONGER = " With a larger one it can: localspec chat -c --ctx N"
TO_GO_ON = "The context is full: to go on, older turns must go. /set context_overflow=drop-oldest"


class Failures:
    """The turn that fails is ended by `Turns`. What waits is asked next, where something can answer."""

    def __init__(self, parts: ChatParts, turns: Turns) -> None:
        self.state, self.feedback, self.turns = parts.state, parts.feedback, turns
        self.recorder, self.tuning = parts.recorder, parts.tuning

    async def meet(self, failure: Failure) -> None:
        """The answer ends here, with an error; or what the engine did outside of an answer failed."""
        if self.state.answer is None:
            await self.meet_outside(failure)
        elif failure.code == ContextOverflow.code and self.turns.has_not_gone_on:
            await self.turns.leave_as_it_was()
            self.state.enter("idle", "idle")
            alone = FULL + LONGER * (self.recorder.keeps and "--ctx" in failure.hint)
            self.feedback.hint(TO_GO_ON if failure.turns_over else alone)
        else:
            words = self.feedback.words(sentence(failure, self.remedy(failure)))
            await self.state.answer.fail(words)
            reason: FinishReason = "context" if failure.code == ContextOverflow.code else "error"
            if not await self.turns.end_turn(reason, failure.message):
                await self.feedback.show(Note(words, level="error"))
            self.state.enter("idle", "idle")
        if self.state.phase == "idle" and failure.code != "engine_died":
            await self.turns.ask_next()

    def remedy(self, failure: Failure) -> str:
        """What goes on where a server has failed, by key: it may be back any time."""
        if failure.code != RemoteError.code or self.state.answer is None:
            return ""
        return self.feedback.with_keys(KEPT if self.state.answer.text else AGAIN)

    async def meet_outside(self, failure: Failure) -> None:
        if self.state.phase == "loading":
            if self.state.exit_code and failure.code == "engine_died":
                return  # the reason stands there; that the engine then ended is no news
            self.state.exit_code = failure.exit_code
        await self.feedback.show(Note(self.feedback.words(sentence(failure)), level="error"))

    async def lose_engine(self) -> None:
        """The engine's process is gone."""
        if self.state.answer is not None:
            await self.meet(Failure(code="engine_died", message=ENGINE_STOPPED))
        failed = NOT_REACHED if self.tuning.server else NOT_LOADED
        self.state.enter("gone", self.feedback.with_keys(failed if self.state.exit_code else DIED))

    def lose_drafter(self, notice: Notice) -> None:
        if notice.code == "drafter_failed" and self.state.model is not None:
            self.recorder.lose_drafter()
            self.state.lose_drafter()


def sentence(failure: Failure, remedy: str = "") -> str:
    """The failure with its hint, but for the one that the state line shows where the engine died. A hint that ends in a
    command, without a period, comes last: nothing else is to be read as a part of it."""
    hint = "" if failure.code == "engine_died" else failure.hint
    parts = (hint, remedy) if hint.endswith((".", "?")) else (remedy, hint)
    return " ".join(filter(None, (failure.message, *parts)))
