"""What a user types, read as what a small model knows: shouted words, words with one slip of the finger, bare sums.

A function of one message and nothing else, so that a conversation is read the same at every later turn. Code, quotes,
paths, flags, long texts and words that are known stay as they are. Knows no model.
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
from localspec.models.sums import is_sum

READ_AS = "read_as"  # the code of the Notice that says how a question was read
NAMED = "models.toml names it: edit the model's folding table there."
MOST_BYTES = 1 << 20
LONGEST = 300  # characters: what is longer was hardly typed
SHORTEST = 4  # letters: from a shorter word too many others are a slip away
QUOTED = r"""`[^`]*`|"[^"]*"|“[^”]*”|„[^“]*“|«[^»]*»|(?<!\w)'[^']*'(?!\w)|‘[^’]*’"""
LETTERS = r"[^\W_]+(?:['’.][^\W_]+)*"
WORD = rf"(?<!\S)(?P<before>[(\[¿¡]*)(?P<word>{LETTERS}(?:-{LETTERS})*)(?P<after>[.,;:!?…)\]]*)(?!\S)"
PIECE = re.compile(f"{QUOTED}|{WORD}")
POSSESSIVE = re.compile(r"['’]s$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Words:
    """`usual`: each known word's usual spelling, by its small letters. `spellings`: in which ways it is right too.
    `asked`: those, in small letters, that are asked about so often that a slip may have meant them."""

    usual: dict[str, str]
    spellings: frozenset[str]
    asked: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> Words:
        """A word a line, in all its spellings, the usual one first. Those behind an empty line are not asked about."""
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
        """The usual spelling of the one known word that is nearest, a slip away; None where two are equally near."""
        for slips in nearer_first(small(word)) if is_plain(word) else ():
            if near := slips & self.usual.keys():
                return self.usual[near.pop()] if len(near) == 1 and near <= self.asked else None
        return None


def small(word: str) -> str:
    """In small letters, with a straight apostrophe."""
    return word.casefold().replace("’", "'")


def is_plain(word: str) -> bool:
    return len(word) >= SHORTEST and word.isascii() and word.isalpha()


def nearer_first(word: str) -> Iterator[set[str]]:
    """What may have been meant by a word: the same letters swapped or doubled; a letter more; another, or one less.
    The first letter is hardly ever another one."""
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    swapped = {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    yield swapped | {a + b[1:] for a, b in cuts if a and b and a[-1] == b[0]} | {a + a[-1] + b for a, b in cuts if a}
    yield {a + letter + b for a, b in cuts for letter in string.ascii_lowercase}
    yield {a + letter + b[1:] for a, b in cuts if a and b for letter in ("", *string.ascii_lowercase)}


def words_of(piece: re.Match[str]) -> list[str]:
    """Those of a PIECE, none of what is quoted."""
    return piece["word"].split("-") if piece["word"] else []


@dataclass(frozen=True, slots=True)
class Folding:
    """`sums`: what a bare sum is read as, for a model that cannot do any."""

    words: Words
    sums: str = ""

    @classmethod
    def open(cls, file: Path, sums: str = "") -> Folding:
        """With the words of a file; CatalogError where it cannot be read, for nobody but models.toml names one."""
        try:
            return cls(Words.parse(strict_json.read_text(file, MOST_BYTES)), sums)
        except CheckpointError as fault:
            raise CatalogError(fault.message, hint=NAMED) from fault

    def messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """A conversation as the model reads it: what the user said is folded, and nothing else."""
        return tuple(Message(one.role, self.read(one.content)) if one.role == "user" else one for one in messages)

    def read(self, text: str) -> str:
        """One message as the model reads it."""
        if len(text) > LONGEST or "\n" in text.strip():
            return text
        folded = self._folded(text)
        return self.sums if self.sums and is_sum(folded) else folded

    def _folded(self, text: str) -> str:
        typed = [word for found in PIECE.finditer(text) for word in words_of(found)]
        hand = Hand(self.words, loud=self._is_shouted(typed), mends=self._is_english(typed))
        return PIECE.sub(hand.read, text)

    def _is_shouted(self, typed: Sequence[str]) -> bool:
        """No small letter, and something that is no name in capitals."""
        strange = [word for word in typed if len(word) > 1 and word.isupper() and word not in self.words.spellings]
        return bool(strange) and all(word == word.upper() for word in typed)

    def _is_english(self, typed: Sequence[str]) -> bool:
        """Half of its words at least are known, so that what is not may be a slip."""
        worded = [POSSESSIVE.sub("", word) for word in typed if not word.isdecimal()]
        unknown = [word for word in worded if not self.words.knows(word)]
        return len(unknown) <= max(1, len(worded) // 2)


@dataclass(slots=True)
class Hand:
    """How one message is written: all in capitals or not, with slips to be mended or none."""

    words: Words
    loud: bool
    mends: bool

    def read(self, found: re.Match[str]) -> str:
        """A quote as it is, or the words of a stretch without blanks, its punctuation kept."""
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
        """What is not known, as it was meant. A capital that begins no message is a name's, and so is what it means."""
        meant = self.words.meant(typed) if self.mends else None
        is_name = typed.istitle() and not begins
        if meant is None or (is_name and meant.islower()):
            return typed.lower() if self.loud and typed.isalpha() else typed
        return meant[:1].upper() + meant[1:] if typed.istitle() else meant
