"""Finds words in the messages of a chat: how often and where, in capitals or not, with accents or without.

Knows texts, and nothing of what shows them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from unicodedata import normalize

from localspec.core.sanitize import clean

ACCENTS = range(0x300, 0x370)
FENCE = re.compile(r"^[ \t>]*(?:`{3,}|~{3,}).*$", re.MULTILINE)
MARKUP = re.compile(
    r"\*\*|__|~~|`|(?<=\])\([^()\s]*\)|^#{1,6} |</?think>|(?<![\w*])\*(?=\S)|(?<=[^\s*])\*(?!\w)", re.MULTILINE
)

Span = tuple[int, int]


class CharacterFolding(dict[int, str]):
    """What a character is compared as; found out when it is first met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        bare = "".join(part for part in normalize("NFD", character) if ord(part) not in ACCENTS)
        accented = len(bare) < len(normalize("NFD", character))
        self[code] = folded = (bare if accented else character).casefold()
        return folded


FOLDING = CharacterFolding()


def folded(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(FOLDING)


def pattern(words: str) -> re.Pattern[str] | None:
    """What is looked for in a folded text; None for no words. A line may break between them."""
    parts = [re.escape(part) for part in folded(words).split()]
    return re.compile(r"\s+".join(parts)) if parts else None


def spans(text: str, sought: re.Pattern[str]) -> list[Span]:
    """The positions of the words in the text."""
    short = folded(text)
    found = [one.span() for one in sought.finditer(short)]
    if len(short) == len(text) or not found:
        return found
    ends = list(accumulate(len(FOLDING[ord(character)]) for character in text))  # in the folded text
    return [
        (bisect_right(ends, start), max(bisect_right(ends, end), bisect_right(ends, end - 1) + 1))
        for start, end in found
    ]


def plain(markdown: str) -> str:
    """The text as it is read: without the signs that only style it."""
    parts = FENCE.split(markdown)  # code at odd indexes
    return "\n".join(part if number % 2 else MARKUP.sub("", part) for number, part in enumerate(parts))


@dataclass(frozen=True, slots=True)
class SearchedMessage:
    """A message to look through; its files are names with texts."""

    text: str
    is_markdown: bool = False
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class WordHit:
    """A hit: the index of its message, and its number among the hits in that text; or the name of the file that has it,
    and that one's number among the message's files with hits."""

    message: int
    number: int
    file: str = ""


@dataclass(frozen=True, slots=True)
class WordHits:
    """The hits of some words, in order: of each message those in its text, then its files, each of which counts once.

    `ends`: how many hits there are up to the end of each message.
    """

    words: str
    counts: tuple[int, ...] = ()
    files: tuple[tuple[str, ...], ...] = ()
    ends: tuple[int, ...] = ()

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def at(self, index: int) -> WordHit:
        message = bisect_right(self.ends, index)
        number = index - (self.ends[message - 1] if message else 0)
        inside = number - self.counts[message]
        return WordHit(message, inside, self.files[message][inside]) if inside >= 0 else WordHit(message, number)

    def first_in(self, message: int) -> int | None:
        """The index of the first hit in this message; None where it has none."""
        before = self.ends[message - 1] if message else 0
        return before if self.ends[message] > before else None


class WordFinder:
    """Looks through a chat. Each text is folded once, so that a key costs little in a long chat."""

    def __init__(self) -> None:
        self._folded: dict[tuple[str, bool], str] = {}

    def find(self, sources: Sequence[SearchedMessage], words: str) -> WordHits:
        """The hits as the messages are now. Takes a while for some megabytes the first time: runs in a thread."""
        sought = pattern(words)
        if sought is None:
            return WordHits(words)
        kept, fresh = self._folded, dict[tuple[str, bool], str]()  # texts that are gone from the chat are forgotten

        def fold(text: str, is_markdown: bool) -> str:
            key = text, is_markdown
            if key not in fresh:
                fresh[key] = kept[key] if key in kept else folded(clean(plain(text) if is_markdown else text))
            return fresh[key]

        counts = tuple(len(sought.findall(fold(one.text, one.is_markdown))) for one in sources)
        files = tuple(tuple(name for name, text in one.files if sought.search(fold(text, False))) for one in sources)
        ends = tuple(accumulate(count + len(names) for count, names in zip(counts, files, strict=True)))
        self._folded = fresh
        return WordHits(words, counts, files, ends)

    def forget(self) -> None:
        self._folded = {}
