"""One turn at a time between a user and an engine: what is said goes to the engine, what it says to the transcript.

Knows no history but its scribe, and no keys. Everything that changes a turn runs in the screen's own message queue, one
at a time, so a stop, a new chat and a burst of tokens cannot interleave.
"""

from __future__ import annotations

from msgspec.structs import replace
from textual.reactive import reactive

from localspec.core.errors import ContextOverflow
from localspec.core.events import AnyEvent, Done, Failure, FinishReason, Prefill, Ready, Step
from localspec.core.requests import GenerateRequest
from localspec.history import Attachment, first_line
from localspec.tui.chat.conversation import Utterance
from localspec.tui.chat.recorder import Kept
from localspec.tui.control.commands import typed
from localspec.tui.control.feed import Feed
from localspec.tui.control.listening import ListenScreen, sentence
from localspec.tui.transcript.token_view import View

WAITING = "One message is waiting already; this one stays here."
REPEATED = "Word for word as before: at temperature 0, or with a seed, it always is. Try: /set temperature=0.8"


class TurnScreen(ListenScreen):
    """A question waits while another is answered, but only one."""

    view: reactive[View] = reactive("markdown", init=False)

    said: Utterance | None = None  # the answer being written, whose widget is `answer`
    measured: int | None = None  # the answer that figures are of

    # --- a question

    async def say(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """Ask this, or let it wait until it can be asked."""
        if self.phase == "unloaded":
            self.load()
        if self.queued is not None or self.phase == "gone":
            self.prompt.give(typed(text), attachments)
            self.status.give_hint(
                WAITING if self.queued is not None else f"{self.status.state} Your message stays here."
            )
            return
        self.queued = self.conversation.ask(text, attachments)
        self.scribe.ask(self.queued, self.tally.stats)
        if self.phase != "idle":
            self.transcript.question(self.queued).wait()
        await self.show_branch()
        if self.phase == "idle":
            await self.ask_next()

    async def show_branch(self) -> None:
        """Its end, and what is said there from now on."""
        await self.transcript.show(self.conversation.branch)
        self.transcript.anchor()
        self.show_figures()

    async def ask_next(self) -> None:
        """Ask what waits, if anything does."""
        if self.queued is not None and self.feed is not None:
            question, self.queued = self.queued, None
            self.transcript.question(question).asked()
            await self.generate(question, self.feed)

    async def generate(self, question: Utterance, feed: Feed) -> None:
        """An answer to this, below it."""
        said = self.conversation.answer(question, self.model.name if self.model else "")
        self.said, self.answer, self.rounds = said, self.transcript.answer(said), said.rounds
        self.title = self.title or first_line(question.text)
        self.enter("reading", "reading prompt")  # before the answer is mounted: idle must mean that nothing is asked
        self.tally.begin()
        self.scribe.answer(said, self.tuning.params)
        self.locate()
        await self.transcript.show(self.conversation.branch)
        self.ask(self.conversation.request(question), feed)

    def ask(self, request: GenerateRequest, feed: Feed) -> None:
        """A stop that came while this was being prepared is meant for it."""
        feed.ask(replace(request, odds=self.view == "rejects"))
        if self.phase == "stopping":
            feed.cancel()

    async def take_back(self) -> None:
        """The message that waits returns to the prompt."""
        if self.queued is not None:
            question, self.queued = self.queued, None
            self.prompt.give(typed(question.text), question.attachments)
            self.conversation.take_back(question)
            self.scribe.remove(question, self.conversation.head)
            await self.show_branch()

    def locate(self) -> None:
        """Be told where in the history the chat is, once that is known."""
        self.scribe.locate(lambda chat_id: self.post_message(Kept(chat_id)))

    # --- its answer

    async def receive(self, event: AnyEvent | None) -> None:
        await super().receive(event)
        match event:
            case Prefill() if self.phase == "reading":
                self.enter("reading", f"reading prompt {event.cached + event.done:,}/{event.total:,}")
            case Step():
                self.write(event)
            case Done():
                await self.finish(event)

    async def welcome_engine(self, ready: Ready) -> None:
        await super().welcome_engine(ready)
        await self.ask_next()

    async def lose_engine(self) -> None:
        if self.answer is not None:
            await self.fail(Failure(code="engine_died", message="The engine stopped."))
        await super().lose_engine()

    def write(self, step: Step) -> None:
        if self.phase == "reading":
            self.pace.start()
            self.enter("generating", "generating")
        if self.said is not None and self.answer is not None:
            self.answer.add(step)
            self.scribe.add(step)
            if self.scribe.is_due:
                self.scribe.save(self.tally.stats)
            self.said.text = self.answer.text

    async def draw(self) -> bool:
        if self.answer is None:
            return await super().draw()
        if not self.pace.draws(in_code=self.answer.passages.in_code):
            return True
        await self.answer.flush()
        if self.has_news and self.pace.draws_figures():
            self.show_figures()
        return self.has_news

    async def finish(self, done: Done) -> None:
        words = "stopped" if self.answer is not None and done.finish_reason == "cancelled" else "idle"
        said = self.said
        if self.answer is not None:
            await self.answer.finish(self.scribe.whole(done.stats))
            self.end_turn(done.finish_reason)
        self.enter("idle", words)
        if said is not None and done.finish_reason != "cancelled" and self.conversation.repeats(said):
            self.status.give_hint(REPEATED)
        await self.ask_next()

    async def fail(self, failure: Failure) -> None:
        if self.answer is None:
            await super().fail(failure)
        else:
            await self.answer.fail(sentence(failure))
            self.end_turn("context" if failure.code == ContextOverflow.code else "error")
            self.enter("idle", "idle")
        if self.phase == "idle" and failure.code != "engine_died":
            await self.ask_next()

    def end_turn(self, reason: FinishReason) -> None:
        """Remember what was said; the next turn may begin."""
        made = self.scribe.end(self.tally.stats, reason)
        if self.said is not None and self.answer is not None:
            self.said.made, (self.said.line, self.said.how) = made, self.answer.ending
            self.measured = self.said.id
        self.said = self.answer = None
        self.collector.wish()

    def stop_answer(self) -> None:
        if self.answering and self.feed is not None:
            self.enter("stopping", "stopping")
            self.feed.cancel()

    async def break_off(self) -> None:
        """The answer ends here, stopped and saved."""
        self.stop_answer()
        if self.answer is not None:
            await self.answer.finish(self.scribe.whole(replace(self.tally.stats, finish_reason="cancelled")))
            self.end_turn("cancelled")
