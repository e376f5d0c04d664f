"""Slash commands: what may be typed after a slash, and what that is. Knows names and texts; the screen does the work.

A command `name` is the screen's method `command_name`, which takes what was typed behind the name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass

from localspec.core.sanitize import one_line
from localspec.models.named_templates import CHOICES

LONGEST_SHOWN = 20  # of a word that is no command


@dataclass(frozen=True, slots=True)
class Known:
    """Names that are the user's own, as they are at present."""

    presets: tuple[str, ...] = ()
    themes: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    drafts: tuple[str, ...] = ()


NOTHING_KNOWN = Known()


@dataclass(frozen=True, slots=True)
class Command:
    """`argument` says what may follow, as usage texts write it: in brackets if it may be left out. `says`: one line.

    `choices` are the words that the argument can be, where they are known, or how to find them among those that are.
    """

    name: str
    says: str
    argument: str = ""
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] | Callable[[Known], tuple[str, ...]] = ()

    @property
    def method(self) -> str:
        """Of the screen."""
        return f"command_{self.name}"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()

    @property
    def needs_argument(self) -> bool:
        return bool(self.argument) and not self.argument.startswith("[")


@dataclass(frozen=True, slots=True)
class Offer:
    """What may stand in the place of what has been typed. `runs`: it is a whole command and nothing is missing."""

    text: str
    usage: str
    says: str
    runs: bool


COMMANDS = (
    Command("new", "begin a new chat", aliases=("clear",)),
    Command("system", "show or set the system prompt of this chat", "[TEXT|none]"),
    Command("retry", "have the last answer written once more, beside it"),
    Command("edit", "write another version of your last message"),
    Command("undo", "go back to before your last message; nothing is deleted"),
    Command("branch", "go on from the last answer on another branch"),
    Command("copy", "copy the last answer, its code or the whole chat", "[code|all]", choices=("code", "all")),
    Command("continue", "go on with an answer that was stopped or cut"),
    Command("spec", "speculate always, as it pays, or not at all", "on|auto|off", choices=("on", "auto", "off")),
    Command("k", "how many tokens to draft", "N|auto"),
    Command("compare", "the last question again in two ways, side by side", "[early-exit:E]"),
    Command("attach", "put a text file into your next message", "PATH"),
    Command("tokens", "show who wrote each token, or the text again", "[rejected]", choices=("rejected",)),
    Command("set", "choose how tokens are sampled", "[temperature=0.7 …]"),
    Command("preset", "sample as this preset does", "[name]", choices=lambda known: known.presets),
    Command("template", "which template, or a Jinja file, words the chat", "[name|none]", choices=CHOICES),
    Command("model", "load another model", "[key, folder or file]", choices=lambda known: known.models),
    Command(
        "draft",
        "choose who drafts",
        "[early-exit[:E], key, folder, file or off]",
        choices=lambda known: (*known.drafts, "early-exit", "auto", "off", *known.models),
    ),
    Command("bench", "measure this model: plain, and as it drafts"),
    Command("fit", "what this model needs in memory", "[ctx]"),
    Command("stats", "all figures of the last answer"),
    Command("show", "what is loaded"),
    Command("license", "the licences of localspec and of this model"),
    Command("unload", "free the memory; the next question loads again"),
    Command("theme", "list the colour themes, or take one", "[NAME]", choices=lambda known: known.themes),
    Command("keys", "show or hide the list of keys"),
    Command("log", "where the engine's log is"),
    Command("help", "all commands and keys"),
    Command("chats", "show the chats that were kept"),
    Command("search", "search all chats", "[WORDS]"),
    Command("export", "write this chat to a file", "md|json|jsonl [PATH]", choices=("md", "json", "jsonl")),
    Command("bye", "leave", aliases=("exit", "quit")),
)


def find(name: str) -> Command | None:
    """The command of this name or alias."""
    return next((command for command in COMMANDS if name in command.names), None)


def parse(text: str) -> tuple[str, str] | None:
    """Name and argument of a typed command; None for a message, which two slashes begin too."""
    typed = re.fullmatch(r"/(?!/)(\S*)\s*(.*)", text, re.DOTALL)
    return (typed[1].lower(), typed[2].strip()) if typed else None


def literal(text: str) -> str:
    """A message that begins with a slash is typed with two."""
    return text[1:] if text.startswith("//") else text


def nearest(word: str, words: tuple[str, ...]) -> str:
    """A question that may help whoever typed a word that is none of these; nothing where none is near."""
    near = difflib.get_close_matches(word, words, n=1)
    return f" Did you mean {near[0]}?" if near else ""


def unknown(name: str) -> str:
    """Why nothing happens."""
    names = tuple(f"/{name}" for command in COMMANDS for name in command.names)
    near = nearest(f"/{name}", names)
    return f"There is no command /{one_line(name)[:LONGEST_SHOWN]}.{near} Type // to begin a message with a slash."


def offers(text: str, known: Known = NOTHING_KNOWN) -> tuple[Offer, ...]:
    """What a command that has been begun may become: its name first, then its argument; a whole word before others."""
    typed = re.fullmatch(r"/(?!/)(\S*)( ?)(\S*)", text)
    if typed is None:
        return ()
    name, space, argument = typed[1].lower(), typed[2], typed[3]
    if not space:
        found = [command for command in COMMANDS if any(one.startswith(name) for one in command.names)]
        return tuple(offer(command) for command in sorted(found, key=lambda command: name not in command.names))
    command = find(name)
    choices = command.choices if command else ()
    words = dict.fromkeys(choices(known) if callable(choices) else choices)
    alike = (word for word in words if word.lower().startswith(argument.lower()))
    likely = sorted(alike, key=lambda word: word != argument)
    return tuple(Offer(f"/{name} {word}", one_line(word), "", runs=True) for word in likely)


def offer(command: Command) -> Offer:
    space = " " if command.argument else ""
    return Offer(f"/{command.name}{space}", command.usage, command.says, runs=not command.needs_argument)


def awaited(text: str) -> Command | None:
    """The command whose argument is being typed."""
    typed = re.fullmatch(r"/(?!/)(\S+) .*", text)
    command = find(typed[1].lower()) if typed else None
    return command if command and command.argument else None


def typed(text: str) -> str:
    """How a message is typed: the other way round."""
    return f"/{text}" if text.startswith("/") else text
