"""Finds commands by what they do: for the palette, and for whoever types one that does not exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from localspec.core.sanitize import one_line
from localspec.tui.control.commands import COMMANDS, Command

LONGEST_SHOWN = 20  # of a word that is not a command
ALIKE = 0.7  # of two words, at least, for one to be taken for a slip of the finger
LEAVES = "bye"  # is never advised


def keywords(command: Command) -> list[str]:
    return command.keywords.split()


def nearest(word: str, words: Iterable[str]) -> str:
    """The one of these that was probably meant; "" where none is near."""
    return next(iter(difflib.get_close_matches(word, [*words], n=1, cutoff=ALIKE)), "")


def did_you_mean(word: str, words: Iterable[str], sign: str = "") -> str:
    """A question that may help whoever typed a word that is none of these; `sign` begins each of them."""
    near = nearest(word, words)
    return f" Did you mean {sign}{near}?" if near else ""


def unknown(name: str) -> str:
    """A sentence for an unknown command, with those that do this, or the nearest name; never the one that leaves."""
    here = [command for command in COMMANDS.values() if command.name != LEAVES]
    meant = [f"/{command.name}" for command in here if name in keywords(command)]
    names = (one for command in here for one in command.names)
    near = f" Try {' or '.join(meant[:2])}." if meant else did_you_mean(name, names, "/")
    return f"There is no command /{one_line(name)[:LONGEST_SHOWN]}.{near} Type // to begin a message with a slash."


def relevance(command: Command, typed: str) -> int:
    """How well a command answers what is typed into the palette: by its names, then its keywords, then what it says; 0
    where a word of it is in none of them."""
    return min((of_word(command, word) for word in typed.casefold().removeprefix("/").split()), default=0)


def of_word(command: Command, word: str) -> int:
    words, says = keywords(command), command.says.casefold()
    ways = (
        word in command.names,
        any(name.startswith(word) for name in command.names),
        word in words,
        any(one.startswith(word) for one in words),
        bool(re.search(rf"\b{re.escape(word)}", says)),
        any(word in one for one in (*command.names, *words)),
    )
    return next((len(ways) - index for index, is_so in enumerate(ways) if is_so), 0)
