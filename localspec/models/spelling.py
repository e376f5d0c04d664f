"""Corrects what a user types for a small model: words in capitals, words with one typo, bare sums.

A message is corrected alike at every later turn. Code, quotes, paths, flags, long texts and known words are unchanged.
Knows no model.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.core import strict_json
from localspec.core.errors import CatalogError, CheckpointError
from localspec.core.requests import Message
from localspec.models.catalog import Entry
from localspec.models.follow_ups import without_earlier_turns
from localspec.models.sums import is_sum

READ_AS = "read_as"  # the code of the Notice that says how a question was read
NAMED = "Edit the model's folding table in models.toml, which names it."
MOST_BYTES = 1 << 20
LONGEST = 300  # characters: a longer text is rarely typed
SHORTEST = 4  # letters: a shorter word is one typo away from too many others
QUOTED = r"""`[^`]*`|"[^"]*"|“[^”]*”|„[^“]*“|«[^»]*»|(?<!\w)'[^']*'(?!\w)|‘[^’]*’"""
LETTERS = r"[^\W_]+(?:['’.][^\W_]+)*"
WORD = rf"(?<!\S)(?P<before>[(\[¿¡]*)(?P<word>{LETTERS}(?:-{LETTERS})*)(?P<after>[.,;:!?…)\]]*)(?!\S)"
PIECE = re.compile(f"{QUOTED}|{WORD}")
POSSESSIVE = re.compile(r"['’]s$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KnownWords:
    """The known words. `usual`: each word's usual spelling, by its lower case. `spellings`: all correct spellings.
    `asked`: the words, in lower case, that are frequent enough to be meant by a typo."""

    usual: dict[str, str]
    spellings: frozenset[str]
    asked: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> KnownWords:
        """Parses one word a line, in all its spellings, the usual one first. Words after an empty line are no
        corrections."""
        lines = [line.strip() for line in text.splitlines() if not line.startswith("#")]
        asked = lines[: lines.index("")] if "" in lines else lines
        spelled = [line.split() for line in lines if line]
        return cls(
            usual={small(spellings[0]): spellings[0] for spellings in spelled},
            spellings=frozenset(one for spellings in spelled for one in spellings),
            asked=frozenset(small(line.split()[0]) for line in asked if line),
        )

    def knows(self, word: str) -> bool:
        return small(word) in self.usual

    def meant(self, word: str) -> str | None:
        """The usual spelling of the known word that is one typo away; None if two are equally near."""
        for near_words in typos(small(word)) if is_plain(word) else ():
            if near := near_words & self.usual.keys():
                return self.usual[near.pop()] if len(near) == 1 and near <= self.asked else None
        return None


def folding_of(entry: Entry) -> Folding | None:
    """What corrects the spelling of this model's users; None for most models."""
    table = entry.folding
    return Folding.open(entry.path / table.words, table.sums, alone=table.alone) if table else None


def small(word: str) -> str:
    """The word in lower case, with a straight apostrophe."""
    return word.casefold().replace("’", "'")


def is_plain(word: str) -> bool:
    return len(word) >= SHORTEST and word.isascii() and word.isalpha()


def typos(word: str) -> Iterator[set[str]]:
    """The words one typo away, likeliest first: letters swapped or doubled; one more; another, or one less. The first
    letter is kept in most of them."""
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    swapped = {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    yield swapped | {a + b[1:] for a, b in cuts if a and b and a[-1] == b[0]} | {a + a[-1] + b for a, b in cuts if a}
    yield {a + letter + b for a, b in cuts for letter in string.ascii_lowercase}
    yield {a + letter + b[1:] for a, b in cuts if a and b for letter in ("", *string.ascii_lowercase)}


def words_of(piece: re.Match[str]) -> list[str]:
    """The words of a PIECE; none of a quote."""
    return piece["word"].split("-") if piece["word"] else []


@dataclass(frozen=True, slots=True)
class Folding:
    """Corrects messages. `sums`: the question that replaces a bare sum, for a model that cannot calculate; `alone`: a
    question that is no follow-up is read without the turns before it."""

    words: KnownWords
    sums: str = ""
    alone: bool = False

    @classmethod
    def open(cls, file: Path, sums: str = "", *, alone: bool = False) -> Folding:
        """Opens a file of words; CatalogError where it cannot be read, since models.toml names it."""
        try:
            return cls(KnownWords.parse(strict_json.read_text(file, MOST_BYTES)), sums, alone)
        except CheckpointError as fault:
            raise CatalogError(fault.message, hint=NAMED) from fault

    def messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation as the model reads it: the user's messages are corrected, no other."""
        read = [Message(one.role, self.read(one.content)) if one.role == "user" else one for one in messages]
        return without_earlier_turns(read) if self.alone else tuple(read)

    def read(self, text: str) -> str:
        """One message as the model reads it."""
        if len(text) > LONGEST or "\n" in text.strip():
            return text
        folded = self._folded(text)
        return self.sums if self.sums and is_sum(folded) else folded

    def _folded(self, text: str) -> str:
        typed = [word for found in PIECE.finditer(text) for word in words_of(found)]
        correction = Correction(self.words, loud=self._is_shouted(typed), mends=self._is_english(typed))
        return PIECE.sub(correction.read, text)

    def _is_shouted(self, typed: Sequence[str]) -> bool:
        """True if there are capitals only, and not just names."""
        strange = [word for word in typed if len(word) > 1 and word.isupper() and word not in self.words.spellings]
        return bool(strange) and all(word == word.upper() for word in typed)

    def _is_english(self, typed: Sequence[str]) -> bool:
        """True if at least half of the words are known, so that an unknown one may be a typo."""
        worded = [POSSESSIVE.sub("", word) for word in typed if not word.isdecimal()]
        unknown = [word for word in worded if not self.words.knows(word)]
        return len(unknown) <= max(1, len(worded) // 2)


@dataclass(slots=True)
class Correction:
    """Corrects one message. `loud`: written in capitals; `mends`: it may have typos."""

    words: KnownWords
    loud: bool
    mends: bool

    def read(self, found: re.Match[str]) -> str:
        """Corrects the words of a match and keeps its punctuation; a quote is unchanged."""
        begins = not found.string[: found.start()].strip()
        parts = [self.one(word, begins=begins) for word in words_of(found)]
        return f"{found['before']}{'-'.join(parts)}{found['after']}" if parts else found[0]

    def one(self, typed: str, *, begins: bool) -> str:
        stem = POSSESSIVE.sub("", typed)
        if self.words.knows(typed):
            return self._known(typed)
        if stem != typed:
            return self.one(stem, begins=begins) + typed[len(stem) :].lower()
        return self._mended(typed, begins=begins)

    def _known(self, typed: str) -> str:
        strange = is_plain(typed) and typed.isupper() and typed not in self.words.spellings
        return self.words.usual[small(typed)] if self.loud or strange else typed

    def _mended(self, typed: str, *, begins: bool) -> str:
        """Corrects an unknown word. A capital that does not begin the message marks a name, corrected to names only."""
        meant = self.words.meant(typed) if self.mends else None
        is_name = typed.istitle() and not begins
        if meant is None or (is_name and meant.islower()):
            return typed.lower() if self.loud and typed.isalpha() else typed
        return meant[:1].upper() + meant[1:] if typed.istitle() else meant
