"""Runs what was typed: sends a message or runs a slash command; what cannot be done goes back into the prompt."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import isawaitable

from localspec.core.sanitize import one_line
from localspec.history import Attachment
from localspec.tui.chat.file_lines import LINES
from localspec.tui.control.command_search import unknown
from localspec.tui.control.commands import Command, UserNames, find
from localspec.tui.control.edits import Edits
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.turns import Turns
from localspec.tui.control.typed_commands import escape_slash, parse, unescape_slash
from localspec.tui.panels.prompt import Prompt

SEND_AS_TEXT = "Send it as text?"


class CommandLine:
    """`run` runs a command, whose argument may be empty."""

    others: tuple[str, ...] = ()  # models that the catalogue does not have, as they were at the start

    def __init__(self, parts: ChatParts, turns: Turns, edits: Edits, *, run: Callable[[Command, str], object]) -> None:
        self.screen, self.feedback, self.tuning = parts.screen, parts.feedback, parts.tuning
        self.turns, self.edits, self.run = turns, edits, run

    async def send(self, message: Prompt.Sent) -> None:
        prompt = self.feedback.prompt
        self.feedback.status.end_hint()  # it was about what was sent before
        prompt.under_way -= 1
        text = self.edits.command_behind(message.text) or message.text
        try:
            if (command := parse(text)) is not None:
                prompt.pills.add(*message.attachments)
                await self.run_command(text, *command)
            else:
                await self.say(unescape_slash(message.text), message.attachments)
        finally:
            prompt.put_back()

    async def say(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """A message; where one is being edited, another version of that."""
        if self.edits.edits_answer:
            await self.edits.rewrite(text, attachments)
        elif self.edits.take_edit():
            await self.turns.say(text, attachments)
            self.edits.sent()
        else:
            self.feedback.prompt.give(escape_slash(text), attachments, was_sent=True)

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
            if lack := command.lack(self.tuning.server):
                self.feedback.refuse(lack)
            elif argument and not command.argument:
                self.feedback.refuse(f"/{name} takes no argument.")
            elif isawaitable(done := self.run(command, argument)):
                await done
        finally:
            self.feedback.command = ""

    def refuse(self, message: Prompt.Refused) -> None:
        """Shows why a file could not be attached, and gives the command back."""
        self.feedback.give_back(message.typed)
        self.feedback.hint(one_line(message.sentence))

    def tell_renewed(self, message: Prompt.Renewed) -> None:
        """Says which files were not sent as they were shown."""
        was_sent = "it was sent as it is" if len(message.names) == 1 else "they were sent as they are"
        self.feedback.hint(f"{', '.join(message.names)} had changed: {was_sent} now.", stays=True)

    def doubt(self, message: Prompt.Doubted) -> None:
        """Asks whether a message goes as it is, whose files are none; it stays in the prompt until then."""
        from localspec.tui.screens.dialog import Dialog, DialogButton

        dialog = Dialog(SEND_AS_TEXT, message.sentences, [DialogButton("send", "Send as text")])
        self.screen.app.push_screen(dialog, lambda reply: self.feedback.prompt.post_sent() if reply else None)

    def attach(self, argument: str) -> None:
        """/attach"""
        quoted = re.fullmatch(f'"([^"]+)"?((?:{LINES})?)', argument)
        self.feedback.prompt.attach(quoted[1] + quoted[2] if quoted else argument, typed=self.feedback.command)

    # --- before it is typed as a whole

    def known(self) -> UserNames:
        """Names that are known without another look at the disk."""
        tuning = self.tuning
        return UserNames(
            presets=tuple(tuning.config.all_presets),
            themes=tuple(sorted(self.screen.app.available_themes)),
            models=tuple(dict.fromkeys((*tuning.catalog.models, *self.others))),
            drafts=tuple(dict(tuning.entry.drafts)) if tuning.entry else (),
        )

    def pick(self, command: Command) -> None:
        """Chosen by name: it runs, or waits in the prompt for its argument."""
        prompt = self.feedback.prompt
        if command.needs_argument:
            prompt.clear()
            prompt.give(f"/{command.name} ")
            prompt.focus()
        elif lack := command.lack(self.tuning.server):
            self.feedback.refuse(lack)
        else:
            self.screen.call_later(self.run, command, "")
