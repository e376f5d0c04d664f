"""Says so when a chat was with another model than the loaded one, and offers to load that.

Reads headers, in a thread. What is loaded is the models' business.
"""

from __future__ import annotations

from functools import partial

from localspec.core.errors import LocalspecError
from localspec.core.events import Notice
from localspec.core.sanitize import one_line
from localspec.history.text.lists import short_name
from localspec.tui.control.models import LEFT_OUT, Chosen, Models
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.tuning import ModelChoice
from localspec.tui.screens.dialog import Dialog, DialogButton

LOAD, GO_ON = "load", "go on"
WAS_WITH = "This chat was with {own}; {now} is loaded."
HOLDS = "{own} holds {most:,} tokens of a chat, {now} {context:,}; this one has {used:,}."
CUTS = f"With {{now}} {LEFT_OUT}"
GONE = "This chat was with {own}, which cannot be loaded now: {why}"
GOES_ON = "This chat was with {own}; it goes on with {now}."
ENOUGH = 1.1  # of a prompt's tokens: another model may count more


class ChatModel:
    """`conversation.own_model` is the history's name of the model that the open chat was with."""

    unreported = False  # that the program was started with another model than the chat's

    def __init__(self, parts: ChatParts, models: Models) -> None:
        self.screen, self.state, self.feedback, self.tuning = parts.screen, parts.state, parts.feedback, parts.tuning
        self.conversation, self.models = parts.conversation, models

    @property
    def other(self) -> str:
        """The chat's model, where that is not the one in use; else ""."""
        own = self.conversation.own_model
        return "" if own == self.tuning.name else own

    # --- a chat is opened

    def ask(self) -> None:
        """A chat was opened: whose it is, if that matters."""
        if own := self.other:
            self.screen.run_worker(
                partial(self.look_up, own), thread=True, exit_on_error=False, exclusive=True, group="own"
            )

    def look_up(self, own: str) -> None:
        """Runs in a thread."""
        if self.tuning.server or self.tuning.is_server(own):
            self.screen.call_later(self.go_on, own)
            return
        try:
            choice = self.choice(own)
        except LocalspecError as fault:
            self.screen.call_later(self.tell, own, fault)
        else:
            self.screen.call_later(self.show, own, choice)

    def choice(self, own: str) -> ModelChoice:
        """The chat's model as it would be loaded. Waits for the disk."""
        return self.tuning.choice(own, held_bytes=self.state.held_bytes, gpu_bytes=self.state.gpu_bytes)

    async def tell(self, own: str, fault: LocalspecError) -> None:
        if own == self.other:
            message = GONE.format(own=short_name(own), why=one_line(fault.message))
            await self.feedback.inform(Notice("warning", "own_model", message, " ".join(self.cuts())))

    async def go_on(self, own: str) -> None:
        """Says that it goes on with what answers now: between a server and this machine nothing is loaded."""
        if own == self.other:
            message = GOES_ON.format(own=short_name(own), now=self.now)
            await self.feedback.inform(
                Notice("info", "own_model", message, f"As before: localspec chat {short_name(own)}")
            )

    def show(self, own: str, choice: ModelChoice) -> None:
        """Offers both."""
        if own == self.other:
            lines = [WAS_WITH.format(own=choice.title, now=self.now), *self.holds(choice), *self.cuts()]
            replies = [DialogButton(LOAD, f"Load {choice.title}"), DialogButton(GO_ON, f"Go on with {self.now}")]
            dialog = Dialog(f"A chat with {choice.title}", lines, replies)
            self.screen.app.push_screen(dialog, partial(self.answer, choice))

    def answer(self, choice: ModelChoice, reply: str | None) -> None:
        if reply == LOAD:
            self.screen.post_message(Chosen(choice))
        elif reply == GO_ON:
            self.feedback.hint(GOES_ON.format(own=choice.title, now=self.now))

    # --- the program was started with another model

    def start(self) -> None:
        """Loads what the user named; that it is another than the chat's is shown once it is loaded."""
        self.unreported = bool(self.other)

    async def welcome(self) -> None:
        if self.unreported and (own := self.other):
            message = GOES_ON.format(own=short_name(own), now=self.now)
            await self.feedback.inform(Notice("info", "own_model", message, " ".join(self.cuts())))
        self.unreported = False

    # --- a question is too long

    def holding(self, prompt_n: int) -> ModelChoice | None:
        """The chat's own model, if it can be loaded and holds so long a prompt. Waits for the disk."""
        try:
            choice = self.choice(own) if (own := self.other) else None
        except LocalspecError:
            return None
        return choice if choice is not None and choice.context > ENOUGH * prompt_n else None

    # --- words

    @property
    def now(self) -> str:
        """The model that is in use, for the user."""
        return self.tuning.now.title

    @property
    def context(self) -> int:
        """Tokens that the loaded model holds; 0 where none is loaded."""
        return self.state.model.context_max if self.state.model is not None else 0

    def holds(self, choice: ModelChoice) -> list[str]:
        """Both contexts, where they differ."""
        most, context, used = choice.context, self.context, self.models.used
        named = {"own": choice.title, "now": self.now, "most": most, "context": context, "used": used}
        return [HOLDS.format(**named)] if context not in (0, most) else []

    def cuts(self) -> list[str]:
        return [CUTS.format(now=self.now)] if 0 < self.context < self.models.used else []
