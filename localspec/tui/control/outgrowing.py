"""What becomes of a question that no longer fits into the context with all that was said before it."""

from __future__ import annotations

from functools import partial

from localspec.config.tables import Overflow as Policy
from localspec.core.events import Failure
from localspec.history import WhenFull
from localspec.tui.control.branches import BranchScreen
from localspec.tui.screens.overflow import Choice, Overflow, oldest


class OutgrowScreen(BranchScreen):
    """`when_full` is what was chosen for this chat, and kept with it; until then it goes as the settings say."""

    when_full: WhenFull | None = None

    @property
    def overflow(self) -> Policy:
        return self.when_full or self.tuning.config.chat.context_overflow

    async def show_chat(self) -> None:
        self.when_full = self.past.chat.when_full if self.past else None
        await super().show_chat()
        await self.transcript.grey(self.conversation.not_told)

    async def fail(self, failure: Failure) -> None:
        if failure.turns_over and self.answer is not None and self.overflow != "stop":
            await self.outgrow(failure)
        else:
            await super().fail(failure)

    async def outgrow(self, failure: Failure) -> None:
        """The question does not fit with all that was said before it."""
        self.enter("reading", "the context is full")
        if self.overflow == "drop-oldest":
            await self.make_room(failure)
        else:
            self.app.push_screen(Overflow(failure.message, failure.turns_over), partial(self.choose_way, failure))

    async def choose_way(self, failure: Failure, choice: Choice | None) -> None:
        """For this chat, where something was chosen."""
        asked = self.conversation.question(self.said) if self.said is not None else None
        if self.phase != "reading" or asked is None:
            return  # the engine ended meanwhile, and the turn with it
        if choice == "new":
            self.enter("idle", "idle")
            await self.begin_chat()
            await self.say(asked.text, asked.attachments)
        elif choice == "drop-oldest":
            self.when_full = choice
            await self.make_room(failure)
        else:
            if choice == "stop":
                self.when_full = choice
                self.scribe.shorten(choice, self.conversation.untold)
            await super().fail(failure)

    async def make_room(self, failure: Failure) -> None:
        """Ask again, without the oldest turns."""
        asked = self.conversation.question(self.said) if self.said is not None else None
        if asked is not None and self.feed is not None:
            self.conversation.untold += failure.turns_over
            self.scribe.shorten(self.when_full, self.conversation.untold)
            self.enter("reading", "reading prompt")
            await self.transcript.grey(self.conversation.not_told)
            self.status.give_hint(f"Dropped {oldest(failure.turns_over)}: not told to the model any more.")
            self.ask(self.conversation.request(asked), self.feed)
