"""A path that is being typed, and the names that it may become. Knows folders and what is typed; no widgets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from time import monotonic

from localspec.core.sanitize import clean
from localspec.tui.chat.attachments import BEFORE

MOST_READ = 100_000  # names of a folder
MOST_LINKS = 200  # that are followed, to say whether they lead to a folder: each may be on a dead disk
READ_SECONDS = 2.0
MOST_OFFERED = 50
BARE, QUOTED = re.compile(rf"{BEFORE}@([^\s\"]\S*|)$"), re.compile(rf'{BEFORE}@("[^"\n]*)$')
PREFIX, INSIDE, SCATTERED = range(3)  # how a name has the letters that were typed; the best first


@dataclass(frozen=True, slots=True)
class Begun:
    """A path as far as it is typed: `written` is how, with an opening quote where there is one."""

    written: str
    mention: bool  # after an @; else a command's argument

    @property
    def path(self) -> str:
        return self.written.removeprefix('"')

    @property
    def name(self) -> str:
        """What is typed of the last name."""
        return os.path.split(self.path)[1]

    @property
    def folder(self) -> str:
        """The folder's part, with its slash."""
        return self.path[: len(self.path) - len(self.name)]


@dataclass(frozen=True, slots=True)
class Named:
    """A name in the folder of a path that is being typed. `rank`: how it has what is typed."""

    name: str
    is_folder: bool
    rank: int


@dataclass(slots=True)
class FolderNames:
    """A folder's names as far as they have been read, by `read` in a thread. A dead disk may keep that for ever."""

    path: str
    names: list[str] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)

    def read(self, *, most: int = MOST_READ, seconds: float = READ_SECONDS) -> None:
        """Links are followed last. What cannot be read has no names."""
        links, until = list[str](), monotonic() + seconds
        try:
            with os.scandir(os.path.expanduser(self.path) or os.curdir) as entries:
                for entry in entries:
                    self.names.append(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        self.folders.add(entry.name)
                    elif entry.is_symlink():
                        links.append(entry.path)
                    if len(self.names) >= most or monotonic() > until:
                        break
        except OSError:
            return
        self.folders.update(os.path.basename(link) for link in links[:MOST_LINKS] if os.path.isdir(link))

    def matching(self, typed: str) -> list[Named]:
        """The names with these letters, folders first among equals. Hidden ones only where a dot is typed, and none
        that no key could type."""
        found = (Named(name, name in self.folders, rank(name, typed)) for name in tuple(self.names))
        fitting = (
            one
            for one in found
            if one.rank <= SCATTERED and is_typeable(one.name) and (typed[:1] == "." or one.name[0] != ".")
        )
        return nsmallest(MOST_OFFERED, fitting, key=lambda one: (one.rank, not one.is_folder, one.name.casefold()))


def begun(before: str, *, argument: bool) -> Begun | None:
    """The path that is typed before the cursor: a command's argument, or what follows an @ at a word's beginning."""
    if argument:
        return Begun(before, mention=False)
    found = BARE.search(before) or QUOTED.search(before)
    return Begun(found[1], mention=True) if found else None


def rank(name: str, typed: str) -> int:
    """PREFIX, INSIDE, SCATTERED; more where it has not all the letters in this order."""
    name, typed = name.casefold(), typed.casefold()
    if typed in name:
        return PREFIX if name.startswith(typed) else INSIDE
    letters = iter(name)
    return SCATTERED if all(letter in letters for letter in typed) else SCATTERED + 1


def is_typeable(name: str) -> bool:
    """Whether a prompt can hold the name: no control bytes, no bytes that are not text, no quote beside a blank."""
    return clean(name) == name and "\n" not in name and not ('"' in name and any(map(str.isspace, name)))


def steps(begun: Begun) -> Iterator[Named]:
    """What a path of dots or of a home alone goes on with: no folder lists those."""
    if begun.path in ("~", "..") or begun.path.endswith(f"{os.sep}.."):
        yield Named(begun.name, is_folder=True, rank=PREFIX)


def written(begun: Begun, one: Named) -> str:
    """How the path is typed with this name: in quotes where it has blanks, which stay open in a folder."""
    path = begun.folder + one.name + ("/" if one.is_folder else "")
    quote = '"' if begun.written.startswith('"') or any(map(str.isspace, path)) else ""
    if one.is_folder:
        return quote + path
    return f"{quote}{path}{quote}{' ' if begun.mention else ''}"
