"""Decides about a question, or more of an answer, that no longer fits into the context with the messages before it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from localspec.config.tables import OverflowPolicy
from localspec.core.events import Failure
from localspec.tui.chat.conversation import Utterance
from localspec.tui.control.chat_model import ChatModel
from localspec.tui.control.failures import Failures
from localspec.tui.control.models import Chosen
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.tuning import ModelChoice
from localspec.tui.control.turns import Turns
from localspec.tui.control.typed_commands import escape_slash
from localspec.tui.screens.overflow import Overflow, OverflowChoice, oldest

NO_SPACE = "The context is full: this answer has no space to go on."
ASKS_AGAIN = "Not asked again in this chat until you type /set context_overflow=ask"


class FullContext:
    """Asks the user, or follows this chat's earlier choice, which the conversation keeps; the settings' until then."""

    def __init__(
        self,
        parts: ChatParts,
        turns: Turns,
        failures: Failures,
        chat_model: ChatModel,
        *,
        begin_chat: Callable[[], Awaitable[None]],
    ) -> None:
        self.screen, self.state, self.feedback, self.engine = parts.screen, parts.state, parts.feedback, parts.engine
        self.conversation, self.recorder, self.tuning = parts.conversation, parts.recorder, parts.tuning
        self.transcript, self.turns, self.failures = parts.transcript, turns, failures
        self.chat_model, self.begin_chat = chat_model, begin_chat

    @property
    def policy(self) -> OverflowPolicy:
        return self.conversation.when_full or self.tuning.config.chat.context_overflow

    def concerns(self, failure: Failure) -> bool:
        return bool(failure.turns_over) and self.state.answer is not None and self.policy != "stop"

    async def meet(self, failure: Failure) -> None:
        """Drop the oldest turns, or ask the user what to do."""
        self.state.enter("reading", "the context is full")
        if self.policy == "drop-oldest":
            await self.drop_oldest(failure)
        elif self.chat_model.other:
            look = partial(self.look_up, failure)
            self.screen.run_worker(look, thread=True, exit_on_error=False, exclusive=True, group="own")
        else:
            self.ask(failure)

    def look_up(self, failure: Failure) -> None:
        """Whether the chat's own model would hold the question. Runs in a thread."""
        self.screen.call_later(self.ask, failure, self.chat_model.holding(failure.prompt_n))

    def ask(self, failure: Failure, own: ModelChoice | None = None) -> None:
        sentence = NO_SPACE if self.turns.has_not_gone_on else failure.message
        screen = Overflow(sentence, failure.turns_over, own=own.title if own is not None else "")
        self.screen.app.push_screen(screen, partial(self.choose, failure, own))

    async def choose(self, failure: Failure, own: ModelChoice | None, choice: OverflowChoice | None) -> None:
        """Applies the choice to this chat, if one was made."""
        utterance = self.state.utterance
        asked = self.conversation.question(utterance) if utterance is not None else None
        if self.state.phase != "reading" or asked is None:
            return  # the engine ended meanwhile, and the turn with it
        if choice == "new":
            self.state.enter("idle", "idle")
            await self.take_out(asked)
            await self.begin_chat()
            await self.turns.say(asked.text, asked.attachments)
        elif choice == "model" and own is not None:
            await self.load(own, asked)
        elif choice == "once":
            await self.drop_oldest(failure)
        elif choice == "drop-oldest":
            self.conversation.when_full = choice
            await self.drop_oldest(failure, f" {ASKS_AGAIN}")
        else:
            if choice == "stop":
                self.conversation.when_full = choice
                self.recorder.shorten(choice, self.conversation.turns_left_out)
            await self.failures.meet(failure)
            if choice == "stop":
                self.feedback.hint(ASKS_AGAIN)

    async def load(self, own: ModelChoice, asked: Utterance) -> None:
        """Load the chat's own model; the question waits in the prompt, unless it has an answer."""
        goes_on = self.turns.has_not_gone_on
        await self.take_out(asked)
        if goes_on:
            self.state.enter("idle", "idle")
        else:
            self.state.prompt.give(escape_slash(asked.text), asked.attachments, was_sent=True)
        await self.turns.show_branch()
        self.screen.post_message(Chosen(own))

    async def take_out(self, asked: Utterance) -> None:
        """The question leaves this chat, where it was never answered."""
        await self.turns.take_back()
        if self.turns.has_not_gone_on:
            await self.turns.leave_as_it_was()
        else:
            await self.turns.break_off()
        if not self.conversation.tree.children(asked.id):
            self.conversation.take_back(asked)
            self.recorder.remove(asked, self.conversation.head)

    async def drop_oldest(self, failure: Failure, how_to_undo: str = "") -> None:
        """Ask again, without the oldest turns."""
        utterance = self.state.utterance
        asked = self.conversation.question(utterance) if utterance is not None else None
        if utterance is not None and asked is not None and self.engine.feed is not None:
            self.conversation.turns_left_out += failure.turns_over
            self.recorder.shorten(self.conversation.when_full, self.conversation.turns_left_out)
            self.state.enter("reading", "reading prompt")
            await self.transcript.grey(self.conversation.out_of_context)
            self.feedback.hint(f"Dropped {oldest(failure.turns_over)}: no longer in the context.{how_to_undo}")
            await self.turns.ask(self.conversation.request(asked, utterance.text), self.engine.feed)
