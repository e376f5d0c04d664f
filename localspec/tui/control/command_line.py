"""Runs what was typed: sends a message or runs a slash command; what cannot be done goes back into the prompt."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable

from localspec.core.sanitize import one_line
from localspec.history import Attachment
from localspec.tui.control.branches import Branches
from localspec.tui.control.commands import Command, find, literal, parse, typed, unknown
from localspec.tui.control.feedback import Feedback
from localspec.tui.control.turns import Turns
from localspec.tui.panels.prompt import Prompt


class CommandLine:
    """`run` runs a command, whose argument may be empty."""

    def __init__(
        self, feedback: Feedback, turns: Turns, branches: Branches, run: Callable[[Command, str], object]
    ) -> None:
        self.feedback, self.turns, self.branches, self.run = feedback, turns, branches, run

    async def send(self, message: Prompt.Sent) -> None:
        prompt = self.feedback.prompt
        self.feedback.status.end_hint()  # it was about what was sent before
        prompt.under_way -= 1
        try:
            if (command := parse(message.text)) is not None:
                prompt.pills.add(*message.attachments)
                await self.run_command(message.text, *command)
            else:
                await self.say(literal(message.text), message.attachments)
        finally:
            prompt.put_back()

    async def say(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """A message; where one is being edited, another version of that."""
        if self.branches.take_edit():
            await self.turns.say(text, attachments)
        else:
            self.feedback.prompt.give(typed(text), attachments)

    async def run_command(self, text: str, name: str, argument: str) -> None:
        """A slash command is never sent to the model, not even one that does not exist. It is over before what was
        typed after it is read."""
        command = find(name)
        if command is None:
            self.feedback.give_back(text)
            self.feedback.hint(unknown(name))
            return
        self.feedback.command = text
        try:
            if argument and not command.argument:
                self.feedback.refuse(f"/{name} takes no argument.")
            elif isawaitable(done := self.run(command, argument)):
                await done
        finally:
            self.feedback.command = ""

    def refuse(self, message: Prompt.Refused) -> None:
        """Shows why a file could not be attached, and gives the command back."""
        self.feedback.give_back(message.typed)
        self.feedback.hint(one_line(message.sentence))
