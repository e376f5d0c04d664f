"""One turn at a time between a user and an engine: a question goes to the engine, its answer to the transcript.

Everything that changes a turn runs in the screen's own message queue, one at a time, so a stop, a new chat and a burst
of tokens cannot interleave. Knows no keys, and of the history its recorder only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from localspec.core.errors import NO_ANSWER
from localspec.core.events import Done, FinishReason, Prefill, Step, Text, Waiting
from localspec.core.requests import GenerateRequest, Reference
from localspec.history import Attachment, first_line
from localspec.history.references import bounded
from localspec.tui.chat.conversation import Utterance
from localspec.tui.chat.copy_sources import elsewhere
from localspec.tui.chat.prompt_progress import PromptReading
from localspec.tui.chat.recorder import ChatSaved
from localspec.tui.chat.repetition import Repetition
from localspec.tui.control.feed import Feed
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.typed_commands import escape_slash
from localspec.tui.panels.stats_line import waiting_words
from localspec.tui.transcript.markers import Note

WAITING = "One message is waiting already; this one stays here."
REPEATED = "The same text as before: at temperature 0, or with a seed, it never changes. Try: /set temperature=0.8"
NOT_NOW = "Wait for the answer to end, or stop it: press {stop}."
NO_ANSWER_YET = f"{NO_ANSWER} {{retry}} asks for one."
ENDED = "The last answer is complete: there is nothing to continue."
CUT = "The answer was cut after max_tokens. /continue goes on."
STOPPED = "you stopped it before it began."
LOOPS = (
    "The answer repeats itself, so it was stopped. "
    "{retry} tries again, /set repetition_penalty=1.1 helps, {continue} goes on anyway."
)


class Turns:
    """A question waits while another is answered, but only one. `leave_bench` ends a measurement that runs; `kept`
    reads what a look-up may copy from other chats."""

    measured: int | None = None  # the answer that figures are of
    loops = False  # the answer that is being written repeats itself, and was stopped

    def __init__(
        self,
        parts: ChatParts,
        *,
        collect: Callable[[], object],
        leave_bench: Callable[[], Awaitable[None]],
        kept: Callable[[], Awaitable[tuple[Reference, ...]]],
    ) -> None:
        self.screen, self.state, self.feedback, self.engine = parts.screen, parts.state, parts.feedback, parts.engine
        self.conversation, self.transcript = parts.conversation, parts.transcript
        self.recorder, self.tuning = parts.recorder, parts.tuning
        self.collect, self.leave_bench, self.kept = collect, leave_bench, kept
        self.prompt_reading = PromptReading()
        self.repetition = Repetition()
        self._ways_out: Note | None = None  # below an answer that repeats itself, until it goes on

    # --- a question

    async def say(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """Ask this, or let it wait until it can be asked."""
        state = self.state
        if state.phase == "unloaded":
            self.engine.load()
        if state.queued is not None or state.phase == "gone":
            state.prompt.give(escape_slash(text), attachments, was_sent=True)
            self.feedback.hint(
                WAITING if state.queued is not None else f"{state.status.state} Your message stays here."
            )
            return
        state.queued = self.conversation.ask(text, attachments)
        self.recorder.ask(state.queued, state.tally.stats)
        if state.phase != "idle":
            self.transcript.question(state.queued).wait()
            self.locate()
        await self.show_branch()
        if state.phase == "idle":
            await self.ask_next()

    async def show_branch(self) -> None:
        """Shows the branch's end, and follows it."""
        await self.transcript.show(self.conversation.branch)
        self.transcript.anchor()
        self.state.show_figures()

    async def show_other_branch(self) -> None:
        """Shows another branch, without the figures of an answer that is not on it."""
        if self.measured not in {utterance.id for utterance in self.conversation.branch}:
            self.state.forget_figures()
        await self.show_branch()

    async def ask_next(self) -> None:
        """Ask what waits, if anything does."""
        if self.state.queued is not None and self.engine.feed is not None:
            question, self.state.queued = self.state.queued, None
            self.transcript.question(question).asked()
            await self.generate(question, self.engine.feed)

    async def generate(self, question: Utterance, feed: Feed) -> None:
        """An answer to this, below it."""
        state = self.state
        utterance = self.conversation.answer(question, state.model.name if state.model else "")
        state.utterance, state.answer = utterance, self.transcript.answer(utterance)
        state.follow_rounds(utterance.rounds)
        state.title = self.recorder.title or first_line(question.text)
        state.enter("reading", "reading prompt")  # before the answer is mounted: idle must mean that nothing is asked
        state.tally.begin()
        self.watch(utterance)
        self.recorder.answer(utterance, self.tuning.params)
        self.locate()
        await self.transcript.show(self.conversation.branch)
        await self.ask(self.conversation.request(question), feed)

    async def ask(self, request: GenerateRequest, feed: Feed) -> None:
        """Sends the request; if the user stopped meanwhile, cancels it at once."""
        references = bounded([*elsewhere(self.conversation), *await self.kept()])
        feed.ask(replace(request, references=references, draft_probabilities=self.transcript.view == "rejects"))
        if self.state.phase == "stopping":
            feed.cancel()

    async def go_on(self) -> None:
        """Continues the last answer, in the same message."""
        utterance = self.conversation.last()
        if utterance is None or utterance.role != "assistant" or not utterance.text:
            self.feedback.hint(self.feedback.with_keys(NO_ANSWER_YET if utterance else NO_ANSWER))
        elif not utterance.may_go_on:
            self.feedback.hint(ENDED)
        elif self.can_ask() and self.engine.feed is not None:
            await self.resume(utterance, self.engine.feed)

    async def resume(self, utterance: Utterance, feed: Feed) -> None:
        """Continues an answer that was cut, in the same message."""
        question, state = self.conversation.question(utterance), self.state
        if question is None:
            return
        state.utterance, state.answer = utterance, self.transcript.answer(utterance)
        state.enter("reading", "reading prompt")
        before = (
            await asyncio.to_thread(self.recorder.rounds, utterance.id)
            if utterance.is_kept
            else tuple(utterance.rounds)
        )
        state.follow_rounds(state.answer.rounds)
        await state.answer.resume()
        if self._ways_out is not None:
            await self._ways_out.remove()
        state.tally.begin()
        self.watch(utterance)
        self.recorder.resume(utterance, before, self.tuning.params)
        self.transcript.anchor()
        await self.ask(self.conversation.request(question, utterance.text), feed)

    @property
    def has_not_gone_on(self) -> bool:
        """Whether an answer that was cut is being continued, and nothing was added yet."""
        return self.state.answer is not None and self.recorder.has_not_gone_on

    async def leave_as_it_was(self) -> None:
        """The answer that was to go on ends as it had ended before."""
        utterance, answer = self.state.utterance, self.state.answer
        self.state.utterance = self.state.answer = None
        self.recorder.drop()
        self.state.forget_figures()
        if utterance is not None and answer is not None:
            await answer.end()
            answer.close(utterance.line, utterance.how)

    async def take_back(self) -> None:
        """The message that waits returns to the prompt."""
        if self.state.queued is not None:
            question, self.state.queued = self.state.queued, None
            self.state.prompt.give(escape_slash(question.text), question.attachments, was_sent=True)
            self.conversation.take_back(question)
            self.recorder.remove(question, self.conversation.head)
            self.locate()
            await self.show_branch()

    def locate(self) -> None:
        """Ask where in the history the chat is; the answer comes as a message."""
        self.recorder.locate(lambda chat_id: self.screen.post_message(ChatSaved(chat_id)))

    # --- whether there may be one

    def is_free(self) -> bool:
        """Whether the conversation may change now; if not, a hint says why."""
        if self.state.busy:
            self.feedback.refuse(self.feedback.with_keys(NOT_NOW))
        return not self.state.busy

    def can_ask(self) -> bool:
        """Whether the engine can, too."""
        if self.is_free() and self.state.phase != "idle":
            self.feedback.refuse(f"Not now: {self.state.status.state}")
        return not self.state.busy and self.state.phase == "idle"

    # --- its answer

    def read(self, event: Waiting | Prefill) -> None:
        if self.state.phase == "reading":
            words = waiting_words(event) if isinstance(event, Waiting) else self.prompt_reading.words(event)
            self.state.enter("reading", words)

    def write(self, step: Step | Text) -> None:
        state = self.state
        if state.phase == "reading":
            self.engine.pace.start()
            state.enter("generating", "generating")
        if state.utterance is not None and state.answer is not None:
            state.answer.add(step)
            self.recorder.add(step)
            if self.recorder.is_due:
                self.recorder.save(state.tally.stats)
            state.utterance.text = state.answer.text
            in_code = state.answer.passages.in_code
            if not self.loops and self.repetition.add(step.text, in_code=in_code) and state.phase == "generating":
                self.loops = True
                self.stop()

    def watch(self, utterance: Utterance) -> None:
        """Watches the answer for a loop; one that goes on may go on with what it repeats already."""
        self.repetition, self.loops, self._ways_out = Repetition(utterance.text), False, None

    async def draw(self) -> bool:
        """Show what was written; whether some of it has to wait for a later frame."""
        state, pace = self.state, self.engine.pace
        if state.answer is None:
            return False
        if not pace.draws(in_code=state.answer.passages.in_code):
            return True
        await state.answer.flush()
        if state.has_news and pace.draws_figures():
            state.show_figures()
        return state.has_news

    async def finish(self, done: Done) -> None:
        """The answer has ended; one that was stopped since it repeats itself has ended by itself, for the record."""
        utterance, answer = self.state.utterance, self.state.answer
        if answer is None and self.state.phase == "loading":
            return  # the end of an answer that was broken off for another drafter
        if loops := self.loops and utterance is not None and done.finish_reason == "cancelled":
            done = Done("stop", replace(done.stats, finish_reason="stop", loops=True))
            self.state.tally.add(done)
        words = "stopped" if answer is not None and done.finish_reason == "cancelled" else "idle"
        if answer is not None:
            await answer.finish(self.recorder.whole(done.stats), self.state.tally.meter.band)
            await self.end_turn(done.finish_reason)
        self.state.enter("idle", words)
        if loops:
            self._ways_out = Note(self.feedback.with_keys(LOOPS))
            await self.feedback.show(self._ways_out)
        elif utterance is not None and done.finish_reason == "length":
            self.feedback.hint(CUT)
        elif utterance is not None and done.finish_reason != "cancelled" and self.conversation.repeats(utterance):
            self.feedback.hint(REPEATED)
        await self.ask_next()

    async def end_turn(self, reason: FinishReason, fault: str = "", why_none: str = STOPPED) -> bool:
        """Keeps the answer; the next turn may begin. False for an answer that never began: it is no version
        beside others, and what was there before it is shown again. `fault`: the sentence of the error that ended it;
        `why_none`: of one that never began and did not fail."""
        state, made = self.state, self.recorder.end(self.state.tally.stats, reason, fault)
        utterance, answer = state.utterance, state.answer
        state.utterance = state.answer = None
        self.collect()
        if utterance is not None and answer is not None and made is not None:
            utterance.made, (utterance.line, utterance.how), utterance.reason = made, answer.ending, fault
            self.measured = utterance.id
        elif utterance is not None:
            self.conversation.remove(utterance)
            self.explain(utterance, fault or why_none)
            self.recorder.show(self.conversation.head)
            state.forget_figures()
            await self.show_branch()
        return made is not None

    def explain(self, removed: Utterance, reason: str) -> None:
        """Keeps why the question of an answer that never began has none."""
        question = self.conversation.question(removed)
        if question is not None and not self.conversation.tree.children(question.id):
            question.reason = reason
            self.recorder.leave_unanswered(question)

    def stop(self) -> None:
        """The answer ends where it is; the measurement that runs, too."""
        if self.state.bench is not None:
            self.screen.call_later(self.leave_bench)
        elif self.state.answering and self.engine.feed is not None:
            self.state.enter("stopping", "stopping")
            self.engine.feed.cancel()

    async def break_off(self, why_none: str = STOPPED) -> bool:
        """The answer ends here, stopped and saved, whatever the engine still says. Whether there was one; `why_none`
        is kept with its question if it never began."""
        self.stop()
        if self.state.answer is None:
            return False
        stats = replace(self.state.tally.stats, finish_reason="cancelled")
        await self.state.answer.finish(self.recorder.whole(stats), self.state.tally.meter.band)
        await self.end_turn("cancelled", why_none=why_none)
        return True
