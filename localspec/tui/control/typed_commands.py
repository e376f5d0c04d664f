"""Text that begins with a slash: which command it is, how it may go on, and how it is a message after all."""

from __future__ import annotations

import re
from dataclasses import dataclass

from localspec.core.sanitize import one_line
from localspec.tui.control import commands
from localspec.tui.control.commands import NOTHING_KNOWN, Command, UserNames, find


@dataclass(frozen=True, slots=True)
class CommandCompletion:
    """One completion of what is typed. `runs`: it is a whole command and nothing is missing.

    `replaces`: so many letters before the cursor; None: all that is typed. `is_typed`: it says what stands there.
    """

    text: str
    usage: str
    says: str
    runs: bool
    replaces: int | None = None
    is_typed: bool = False


def parse(text: str) -> tuple[str, str] | None:
    """Name and argument of a typed command; None for a message, which two slashes begin too."""
    typed = re.fullmatch(r"/(?!/)(\S*)\s*(.*)", text, re.DOTALL)
    return (typed[1].lower(), typed[2].strip()) if typed else None


def unescape_slash(text: str) -> str:
    """The message `/x` of a typed `//x`: two slashes begin a message, one a command."""
    return text[1:] if text.startswith("//") else text


def offers(text: str, known: UserNames = NOTHING_KNOWN) -> tuple[CommandCompletion, ...]:
    """The completions of a command: its name first, then its argument; a whole word before others."""
    typed = re.fullmatch(r"/(?!/)(\S*)( ?)(\S*)", text)
    if typed is None:
        return ()
    name, space, argument = typed[1].lower(), typed[2], typed[3]
    if not space:
        found = [one for one in commands.COMMANDS.values() if any(alias.startswith(name) for alias in one.names)]
        return tuple(offer(command) for command in sorted(found, key=lambda command: name not in command.names))
    command = find(name)
    choices = command.choices if command else ()
    words = dict.fromkeys(choices(known) if callable(choices) else choices)
    alike = (word for word in words if word.lower().startswith(argument.lower()))
    likely = sorted(alike, key=lambda word: word != argument)
    return tuple(CommandCompletion(f"/{name} {word}", one_line(word), "", runs=True) for word in likely)


def offer(command: Command) -> CommandCompletion:
    space = " " if command.argument else ""
    return CommandCompletion(f"/{command.name}{space}", command.usage, command.says, runs=not command.needs_argument)


def awaited(text: str) -> Command | None:
    """The command whose argument is being typed."""
    typed = re.fullmatch(r"/(?!/)(\S+) .*", text)
    command = find(typed[1].lower()) if typed else None
    return command if command and command.argument else None


def escape_slash(text: str) -> str:
    """How the message `/x` is typed: `//x`."""
    return f"/{text}" if text.startswith("/") else text
