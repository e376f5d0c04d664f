"""Slash commands: what may be typed after a slash, what that is, and what it does. A new command is a row here, a
method of the controller that it belongs to, and its row of KEYWORDS in command_search.py. Knows names and texts; the
controllers do the work.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.core.sanitize import one_line
from localspec.core.weight_formats import AUTO, LISTED
from localspec.engine.drafters import table
from localspec.models.named_templates import CHOICES

if TYPE_CHECKING:
    from localspec.tui.screens.chat import ChatScreen


@dataclass(frozen=True, slots=True)
class UserNames:
    """Names that are the user's own, as they are at present."""

    presets: tuple[str, ...] = ()
    themes: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    drafts: tuple[str, ...] = ()


NOTHING_KNOWN = UserNames()


@dataclass(frozen=True, slots=True)
class Command:
    """`argument` says what may follow, as usage texts write it: in brackets if it may be left out. `says`: one line.

    `run` takes the chat and what was typed after the name. `choices` are the words that the argument can be, where
    they are known, or how to find them among those that are.
    """

    name: str
    says: str
    run: Callable[[ChatScreen, str], object]
    argument: str = ""
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] | Callable[[UserNames], tuple[str, ...]] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()

    @property
    def takes_path(self) -> bool:
        return self.argument == "PATH"

    @property
    def needs_argument(self) -> bool:
        return bool(self.argument) and not self.argument.startswith("[")


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


COMMANDS = {
    command.name: command
    for command in (
        Command("new", "begin a new chat", lambda chat, _: chat.chats.begin(), aliases=("clear",)),
        Command(
            "system",
            "show or set the system prompt of this chat",
            lambda chat, typed: chat.settings.system(typed),
            "[TEXT|none]",
        ),
        Command("retry", "regenerate the last answer, keeping the old one", lambda chat, _: chat.branches.retry()),
        Command("edit", "write another version of your last message", lambda chat, _: chat.branches.edit()),
        Command("undo", "take the last turn back into the prompt", lambda chat, _: chat.undo.take_back()),
        Command("redo", "bring back the turn that was taken back", lambda chat, _: chat.undo.bring_back()),
        Command("branch", "go on from the last answer on another branch", lambda chat, _: chat.branches.branch()),
        Command(
            "copy",
            "copy the last answer, its last block of code or the whole chat",
            lambda chat, typed: chat.copies.copy(typed),
            "[code|all]",
            choices=("code", "all"),
        ),
        Command("continue", "go on with an answer that was stopped or cut", lambda chat, _: chat.turns.go_on()),
        Command(
            "spec",
            "speculative decoding: on, auto or off",
            lambda chat, typed: chat.speculation.switch(typed),
            "on|auto|off",
            choices=("on", "auto", "off"),
        ),
        Command("k", "how many tokens to draft", lambda chat, typed: chat.speculation.set_length(typed), "N|auto"),
        Command(
            "compare",
            "answer the last question with and without drafting, side by side",
            lambda chat, typed: chat.speculation.compare(typed),
            "[early-exit:E]",
        ),
        Command(
            "attach",
            "attach a text file to your next message",
            lambda chat, typed: chat.command_line.attach(typed),
            "PATH",
        ),
        Command(
            "tokens",
            "show who wrote each token, or the text again",
            lambda chat, typed: chat.views.tokens(typed),
            "[rejected]",
            choices=("rejected",),
        ),
        Command(
            "set",
            "set sampling options (temperature …)",
            lambda chat, typed: chat.settings.set(typed),
            "[temperature=0.7 …]",
        ),
        Command(
            "preset",
            "use a sampling preset",
            lambda chat, typed: chat.settings.preset(typed),
            "[name]",
            choices=lambda known: known.presets,
        ),
        Command(
            "template",
            "set the chat template (a name or a Jinja file)",
            lambda chat, typed: chat.settings.template(typed),
            "[name|none]",
            choices=CHOICES,
        ),
        Command(
            "model",
            "load another model",
            lambda chat, typed: chat.models.model(typed),
            "[key, folder or file]",
            choices=lambda known: known.models,
        ),
        Command(
            "draft",
            "list drafters for this model and their speed-up, or choose one",
            lambda chat, typed: chat.drafters.draft(typed),
            f"[{', '.join(table.usages())}, key, folder, file or off]",
            choices=lambda known: (*known.drafts, *table.names(), "auto", "off", *known.models),
        ),
        Command(
            "quant",
            "weight formats of this model: sizes, what fits, load one",
            lambda chat, typed: chat.models.quant(typed),
            "[format]",
            choices=(AUTO, *LISTED),
        ),
        Command("why", "the drafter, what else could draft, and their speed-up", lambda chat, _: chat.drafters.show()),
        Command("bench", "measure the speed with and without drafting", lambda chat, _: chat.measuring.bench()),
        Command(
            "fit", "memory that this model needs, by format", lambda chat, typed: chat.measuring.fit(typed), "[ctx]"
        ),
        Command("stats", "all figures of the last answer", lambda chat, _: chat.reports.stats()),
        Command("show", "what is loaded", lambda chat, _: chat.reports.show()),
        Command("license", "the licences of localspec and of this model", lambda chat, _: chat.reports.license()),
        Command("unload", "unload the model; the next question loads it again", lambda chat, _: chat.models.unload()),
        Command(
            "theme",
            "choose a colour theme",
            lambda chat, typed: chat.settings.theme(typed),
            "[NAME]",
            choices=lambda known: known.themes,
        ),
        Command("keys", "show or hide the list of keys", lambda chat, _: chat.views.toggle_keys()),
        Command("log", "where the engine's log is", lambda chat, _: chat.reports.log()),
        Command("help", "all commands and keys", lambda chat, _: chat.views.help()),
        Command("chats", "show the saved chats", lambda chat, _: chat.chats.toggle_list()),
        Command("tree", "show the branches of this chat", lambda chat, _: chat.branches.show_tree()),
        Command(
            "rename",
            "give this chat another title",
            lambda chat, typed: chat.chats.rename(typed),
            "TEXT",
            aliases=("title",),
        ),
        Command("search", "search all chats", lambda chat, typed: chat.chats.search(typed), "[WORDS]"),
        Command(
            "export",
            "write this chat to a file",
            lambda chat, typed: chat.chats.export(typed),
            "md|json|jsonl [PATH]",
            choices=("md", "json", "jsonl"),
        ),
        Command("bye", "leave", lambda chat, _: chat.app.action_quit(), aliases=("exit", "quit")),
    )
}


def find(name: str) -> Command | None:
    """The command of this name or alias."""
    return next((command for command in COMMANDS.values() if name in command.names), None)


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
        found = [command for command in COMMANDS.values() if any(one.startswith(name) for one in command.names)]
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
