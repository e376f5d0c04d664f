"""What was typed, on its way: a message is said, a slash command obeyed; what cannot be goes back into the prompt."""

from __future__ import annotations

from inspect import isawaitable

from localspec.sanitize import one_line
from localspec.tui.commands import find, literal, parse, unknown
from localspec.tui.prompt import Prompt
from localspec.tui.turn import TurnScreen


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
        self.status.give_hint(one_line(message.sentence))

    async def obey(self, text: str, name: str, argument: str) -> None:
        """A slash command: it is never sent to the model, not even one that does not exist. It is over before what was
        typed after it is read."""
        command = find(name)
        if command is None:
            self.prompt.give(text)
            self.status.give_hint(unknown(name))
        else:
            self.obeyed = text
            try:
                done = getattr(self, command.method)(argument)
                if isawaitable(done):
                    await done
            finally:
                self.obeyed = ""

    def refuse(self, why: str) -> None:
        """What is wanted cannot be at present. If it was typed it stays in the prompt, as a message does."""
        if self.obeyed:
            self.prompt.give(self.obeyed)
        self.status.give_hint(why)
