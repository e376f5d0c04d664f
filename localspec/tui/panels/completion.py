"""The completion list: a few lines above the prompt with what a command or a path may become. Never focused; the prompt
asks it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress

from textual.content import Content
from textual.widgets import Static

from localspec.core.sanitize import one_line
from localspec.tui.chat.daemon import in_daemon
from localspec.tui.chat.file_names import MOST_OFFERED, PREFIX, Begun, FolderNames, Named, begun, steps, written
from localspec.tui.control.commands import UserNames
from localspec.tui.control.typed_commands import CommandCompletion, awaited, offers

MOST_ROWS = 8
WIDEST_USAGE, WIDEST_PATH = 26, 60
CHOSEN, OTHER = "› ", "  "
PATIENCE_SECONDS = 1.0  # with a folder; then what has been read of it is offered
AT_ONCE = 2000  # names that are searched between two keys; more are searched in a thread
MORE = "and more: keep typing"


class Completion(Static):
    """Follows a text. Open while there is something to choose; the usage of a typed command is only read."""

    def __init__(self, known: Callable[[], UserNames]) -> None:
        super().__init__(markup=False)
        self._known = known
        self.display = False
        self._text = ("", "")
        self._offers: tuple[CommandCompletion, ...] = ()
        self._index: int | None = None
        self._folder: FolderNames | None = None  # of the path that is typed, once it has been read

    @property
    def is_open(self) -> bool:
        return bool(self._offers)

    @property
    def chosen(self) -> CommandCompletion | None:
        return None if self._index is None else self._offers[self._index]

    @property
    def best(self) -> CommandCompletion | None:
        """The chosen one, or the first."""
        return self._offers[self._index or 0] if self._offers else None

    def follow(self, text: str, before: str) -> None:
        """A text that has been followed already opens nothing again. An argument not begun is not chosen by itself.
        `before` is what stands before the cursor in its line."""
        if (text, before) == self._text:
            return
        self._text = text, before
        path = typed_path(text, before)
        if path is None:
            self._folder = None
            self._offer(offers(text, self._known()), begun=not text.endswith(" "))
        elif self._folder is not None and self._folder.path == path.folder and len(self._folder.names) <= AT_ONCE:
            self._offer_names(path, self._folder.matching(path.name))
        else:
            self._offers, self._index = (), None  # those of another text; they are drawn until there are others
            self.run_worker(self._look(path), group="paths", exclusive=True)

    def pass_over(self, text: str, before: str) -> None:
        """A text that was not typed opens nothing."""
        self._text = text, before
        self.close()

    def move(self, direction: int) -> bool:
        """Choose the next one or the one before, if there is a choice."""
        if self._offers:
            before = self._index if self._index is not None else min(-direction, 0)
            self._index = (before + direction) % len(self._offers)
            self._draw()
        return self.is_open

    def close(self) -> bool:
        """Closes the list until something else is typed; returns whether it was open."""
        was_open, self._offers, self._index = self.is_open, (), None
        self._draw()
        return was_open

    # --- paths

    async def _look(self, path: Begun) -> None:
        """Offers what the folder has, as far as it answers in time."""
        typed, folder = self._text, self._folder
        if folder is None or folder.path != path.folder:
            folder = FolderNames(path.folder)
            with suppress(TimeoutError):
                await asyncio.wait_for(in_daemon(folder.read), PATIENCE_SECONDS)
        names = await asyncio.to_thread(folder.matching, path.name)
        if self._text == typed:
            self._folder = folder
            self._offer_names(path, names)

    def _offer_names(self, path: Begun, names: list[Named]) -> None:
        found = [*steps(path), *names]
        says = {MOST_OFFERED - 1: MORE}
        likely = bool(path.name) and bool(found) and found[0].rank == PREFIX
        self._offer(
            tuple(path_offer(path, one, says.get(number, "")) for number, one in enumerate(found)), begun=likely
        )

    # --- what is shown

    def _offer(self, found: tuple[CommandCompletion, ...], *, begun: bool) -> None:
        self._offers, self._index = found, 0 if found and begun else None
        self._draw()

    def _draw(self) -> None:
        usage = self._usage()
        lines = [*usage, *self._rows(MOST_ROWS - len(usage))]
        if lines or self.display:  # else every key would lay out the screen
            self.display = bool(lines)
            self.update(Content("\n").join(lines))

    def _rows(self, most: int) -> list[Content]:
        first = max(0, (self._index or 0) - most + 1)
        shown = list(enumerate(self._offers))[first : first + most]
        widest = WIDEST_USAGE if all(offer.replaces is None for _, offer in shown) else WIDEST_PATH
        width = min(widest, max((len(offer.usage) for _, offer in shown), default=0))
        return [row(offer, width, chosen=index == self._index) for index, offer in shown]

    def _usage(self) -> list[Content]:
        """The usage of a command whose argument is typed, unless its choices are listed."""
        command = awaited(self._text[0])
        if command is None or (self._offers and not command.takes_path):
            return []
        return [Content.styled(f"{OTHER}{command.usage}  {command.says}", "$foreground-muted")]


def typed_path(text: str, before: str) -> Begun | None:
    """The path before the cursor: after an @ in a message, or as a command's argument."""
    if re.match(r"/(?!/)", text) is None:
        return begun(before, argument=False)
    command = awaited(text)
    if command is None or not command.takes_path or text != before:
        return None
    return begun(text.partition(" ")[2].lstrip(), argument=True)


def path_offer(path: Begun, one: Named, says: str) -> CommandCompletion:
    """The completion of a path. A command runs with a file; a message is only sent if the file's name is there."""
    text, slash = written(path, one), "/" if one.is_folder else ""
    is_typed = not one.is_folder and text.rstrip() == path.written
    runs = is_typed or not (one.is_folder or path.mention)
    return CommandCompletion(text, one_line(f"{path.folder}{one.name}{slash}"), says, runs, len(path.written), is_typed)


def row(offer: CommandCompletion, width: int, *, chosen: bool) -> Content:
    """The argument and the help are quieter than the name."""
    name, space, argument = offer.usage.partition(" ") if offer.replaces is None else (offer.usage, "", "")
    rest = f"{space}{argument}".ljust(width - len(name)) + f"  {offer.says}"
    return Content.assemble(
        (CHOSEN if chosen else OTHER, "bold"),
        (name, "bold $text-accent" if chosen else ""),
        (rest, "$foreground-muted"),
    )
