"""What was typed, on its way: a message is said, a slash command obeyed; what cannot be goes back into the prompt."""

from __future__ import annotations

from inspect import isawaitable

from localspec.core.sanitize import one_line
from localspec.tui.control.commands import find, literal, parse, unknown
from localspec.tui.control.turns import TurnScreen
from localspec.tui.panels.prompt import Prompt


class ObeyScreen(TurnScreen):
    """A command `name` is the method `command_name` of a subclass."""

    obeyed = ""  # the command that is being obeyed, as it was typed

    async def on_prompt_sent(self, message: Prompt.Sent) -> None:
        self.status.end_hint()  # it was about what was sent before
        self.prompt.under_way -= 1
        try:
            if (command := parse(message.text)) is not None:
                self.prompt.pills.add(*message.attachments)
                await self.obey(message.text, *command)
            else:
                await self.say(literal(message.text), message.attachments)
        finally:
            self.prompt.put_back()

    def on_prompt_refused(self, message: Prompt.Refused) -> None:
        self.give_back(message.typed)
        self.status.give_hint(one_line(message.sentence))

    async def obey(self, text: str, name: str, argument: str) -> None:
        """A slash command: it is never sent to the model, not even one that does not exist. It is over before what was
        typed after it is read."""
        command = find(name)
        if command is None:
            self.give_back(text)
            self.status.give_hint(unknown(name))
            return
        self.obeyed = text
        try:
            if argument and not command.argument:
                self.refuse(f"/{name} stands alone: nothing comes behind it.")
            elif isawaitable(done := getattr(self, command.method)(argument)):
                await done
        finally:
            self.obeyed = ""

    def refuse(self, why: str) -> None:
        """What is wanted cannot be, at present or ever. If it was typed it stays in the prompt, as a message does."""
        self.give_back(self.obeyed)
        self.status.give_hint(one_line(why))

    def give_back(self, typed: str) -> None:
        """A command, to be mended; one that was chosen with a key has nothing to give back."""
        if typed:
            self.prompt.give(typed)
