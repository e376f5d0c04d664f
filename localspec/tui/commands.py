"""Slash commands: what may be typed after a slash, and what that is. Knows names and texts; the screen does the work.

A command `name` is the screen's method `command_name`, which takes what was typed behind the name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """`argument` says what may follow, as usage texts write it; `says` is one line of help."""

    name: str
    says: str
    argument: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """Of the screen."""
        return f"command_{self.name}"


COMMANDS = (
    Command("new", "begin a new chat"),
    Command("tokens", "show who wrote each token, or the text again"),
    Command("attach", "put a text file into your next message", "PATH"),
    Command("bye", "leave", aliases=("exit", "quit")),
)


def find(name: str) -> Command | None:
    """The command of this name or alias."""
    return next((command for command in COMMANDS if name in (command.name, *command.aliases)), None)


def parse(text: str) -> tuple[str, str] | None:
    """Name and argument of a typed command; None for a message, which two slashes begin too."""
    if not text.startswith("/") or text.startswith("//"):
        return None
    name, _, argument = text[1:].partition(" ")
    return name.lower(), argument.strip()


def literal(text: str) -> str:
    """A message that begins with a slash is typed with two."""
    return text[1:] if text.startswith("//") else text
