"""Slash commands: each one's name and words, and what it does. A new command is a row here and a
method of the controller that it belongs to. Knows names and texts; the controllers do the work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.core.requests import SAMPLING_FIELDS
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
    """`says`: one line; `keywords`: other words for what it does. `argument` says what may follow, as usage texts write
    it: in brackets if it may be left out.

    `run` takes the chat and what was typed after the name. `choices` are the words that the argument can be, where
    they are known, or how to find them among those that are. `lacks`: why it does nothing in a chat with a server; ""
    where it works there.
    """

    name: str
    says: str
    keywords: str
    run: Callable[[ChatScreen, str], object]
    argument: str = ""
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] | Callable[[UserNames], tuple[str, ...]] = ()
    lacks: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()

    @property
    def takes_path(self) -> bool:
        return self.argument == "PATH"

    def lack(self, server: str) -> str:
        """The sentence of `lacks` for this server; "" without a server."""
        return self.lacks.format(server=one_line(server)[:60]) if server else ""

    @property
    def needs_argument(self) -> bool:
        return bool(self.argument) and not self.argument.startswith("[")


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "new",
            "begin a new chat",
            "start begin conversation chat reset",
            lambda chat, _: chat.chats.begin(),
            aliases=("clear",),
        ),
        Command(
            "system",
            "show or set the system prompt of this chat",
            "prompt instructions persona role",
            lambda chat, typed: chat.settings.system(typed),
            "[TEXT|none]",
        ),
        Command(
            "retry",
            "regenerate the last answer, keeping the old one",
            "regenerate again repeat another answer reroll",
            lambda chat, _: chat.branches.retry(),
        ),
        Command(
            "edit",
            "write another version of your last message",
            "change rewrite correct message question",
            lambda chat, _: chat.edits.edit(),
        ),
        Command(
            "undo",
            "take the last turn back into the prompt",
            "take back revert remove last turn",
            lambda chat, _: chat.undo.take_back(),
        ),
        Command(
            "redo",
            "bring back the turn that was taken back",
            "undo again forward restore bring back",
            lambda chat, _: chat.undo.bring_back(),
        ),
        Command(
            "branch",
            "go on from the last answer on another branch",
            "fork split alternative version",
            lambda chat, _: chat.branches.branch(),
        ),
        Command(
            "copy",
            "copy the last answer, its last block of code or the whole chat",
            "clipboard yank code",
            lambda chat, typed: chat.copies.copy(typed),
            "[code|all]",
            choices=("code", "all"),
        ),
        Command(
            "continue",
            "go on with an answer that was stopped or cut",
            "resume go on longer finish cut",
            lambda chat, _: chat.turns.go_on(),
        ),
        Command(
            "spec",
            "speculative decoding: on, auto or off",
            "speculation speculative faster speed drafting turn off",
            lambda chat, typed: chat.speculation.switch(typed),
            "on|auto|off",
            choices=("on", "auto", "off"),
        ),
        Command(
            "k",
            "how many tokens to draft",
            "draft length tokens speculation",
            lambda chat, typed: chat.speculation.set_length(typed),
            "N|auto",
        ),
        Command(
            "compare",
            "answer the last question with and without drafting, side by side",
            "plain speed faster side difference measure",
            lambda chat, typed: chat.speculation.compare(typed),
            "[early-exit:E]",
        ),
        Command(
            "attach",
            "attach a text file to your next message; PATH:10-20 attaches those lines",
            "file upload add include document read lines part",
            lambda chat, typed: chat.command_line.attach(typed),
            "PATH",
        ),
        Command(
            "tokens",
            "show who wrote each token, or the text again",
            "who wrote colours provenance accepted drafted",
            lambda chat, typed: chat.views.tokens(typed),
            "[rejected]",
            choices=("rejected",),
        ),
        Command(
            "set",
            "set sampling options (temperature …)",
            f"{' '.join(SAMPLING_FIELDS)} sampling penalty repetition settings options",
            lambda chat, typed: chat.settings.set(typed),
            "[temperature=0.7 …]",
        ),
        Command(
            "preset",
            "use a sampling preset",
            "sampling temperature creative balanced precise",
            lambda chat, typed: chat.settings.preset(typed),
            "[name]",
            choices=lambda known: known.presets,
        ),
        Command(
            "template",
            "set the chat template (a name or a Jinja file)",
            "chat format jinja chatml completion",
            lambda chat, typed: chat.settings.template(typed),
            "[name|none]",
            choices=CHOICES,
            lacks="{server} formats the chat itself.",
        ),
        Command(
            "model",
            "load another model",
            "load switch change download hub pull library delete quant size",
            lambda chat, typed: chat.picker.model(typed),
            "[key, folder or file]",
            choices=lambda known: known.models,
            lacks="This chat is with {server}. For a model on this machine: localspec chat MODEL",
        ),
        Command(
            "draft",
            "list drafters for this model and their speed-up, or choose one",
            "drafter draft model early exit speculation faster",
            lambda chat, typed: chat.drafters.draft(typed),
            f"[{', '.join(table.usages())}, key, folder, file or off]",
            choices=lambda known: (*known.drafts, *table.names(), "auto", "off", *known.models),
            lacks="{server} chooses its drafter: it is set where the server is started.",
        ),
        Command(
            "quant",
            "weight formats of this model: sizes, what fits, load one",
            f"quantisation quantization format precision weights {' '.join(LISTED)}",
            lambda chat, typed: chat.picker.quant(typed),
            "[format]",
            choices=(AUTO, *LISTED),
            lacks="{server} chooses its weight format: it is set where the server is started.",
        ),
        Command(
            "why",
            "the drafter, what else could draft, and their speed-up",
            "speculation faster speed slow drafter draft model reason",
            lambda chat, _: chat.drafters.show(),
            lacks="{server} chooses its drafter. What is known of it: /show",
        ),
        Command(
            "bench",
            "measure the speed with and without drafting",
            "benchmark measure speed faster tokens per second",
            lambda chat, _: chat.measuring.bench(),
            lacks="/bench measures models on this machine. For a server's own answers: /stats",
        ),
        Command(
            "fit",
            "memory that this model needs, by format",
            "memory ram vram gpu context size quant format",
            lambda chat, typed: chat.measuring.fit(typed),
            "[ctx]",
            lacks="/fit is about this machine's memory, and the model is at {server}.",
        ),
        Command(
            "stats",
            "all figures of the last answer",
            "statistics figures numbers speed acceptance",
            lambda chat, _: chat.reports.stats(),
        ),
        Command("show", "what is loaded", "info details loaded context format", lambda chat, _: chat.reports.show()),
        Command(
            "license",
            "the licences of localspec and of this model",
            "licence legal terms rights",
            lambda chat, _: chat.reports.license(),
            lacks="The licence of a server's model is not known here: ask whoever runs {server}.",
        ),
        Command(
            "unload",
            "unload the model; the next question loads it again",
            "free memory stop eject release",
            lambda chat, _: chat.models.unload(),
            lacks="Nothing is loaded here: the model is at {server}.",
        ),
        Command(
            "theme",
            "choose a colour theme",
            "colour colours color colors dark light look appearance style",
            lambda chat, typed: chat.settings.theme(typed),
            "[NAME]",
            choices=lambda known: known.themes,
        ),
        Command(
            "keys",
            "show or hide the list of keys",
            "keyboard shortcuts bindings hotkeys",
            lambda chat, _: chat.views.toggle_keys(),
        ),
        Command(
            "log",
            "where the engine's log is",
            "debug errors engine file",
            lambda chat, _: chat.reports.log(),
            lacks="Nothing runs here that would have a log: the model is at {server}.",
        ),
        Command("help", "all commands and keys", "commands keys how manual usage", lambda chat, _: chat.views.help()),
        Command(
            "chats",
            "show the saved chats",
            "history list sidebar delete rename pin old conversations",
            lambda chat, _: chat.chats.toggle_list(),
        ),
        Command(
            "tree",
            "show the branches of this chat",
            "branches versions map history jump",
            lambda chat, _: chat.branches.show_tree(),
        ),
        Command(
            "rename",
            "give this chat another title",
            "title name chat",
            lambda chat, typed: chat.chats.rename(typed),
            "TEXT",
            aliases=("title",),
        ),
        Command(
            "search",
            "search all chats",
            "find history grep look words",
            lambda chat, typed: chat.chats.search(typed),
            "[WORDS]",
        ),
        Command(
            "export",
            "write this chat to a file",
            "save write markdown json file download",
            lambda chat, typed: chat.chats.export(typed),
            "md|json|jsonl [PATH]",
            choices=("md", "json", "jsonl"),
        ),
        Command(
            "bye",
            "leave",
            "quit exit leave close end",
            lambda chat, _: chat.app.action_quit(),
            aliases=("exit", "quit"),
        ),
    )
}


def find(name: str) -> Command | None:
    """The command of this name or alias."""
    return next((command for command in COMMANDS.values() if name in command.names), None)
