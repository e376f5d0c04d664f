"""What is done to a model's folder, and the sentence that whoever runs it reads.

Each attack is a row of a table: weights.py, configurations.py. Knows nothing about how they are run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import REPEAT

Spoil = Callable[[Path], object]
Rows = Mapping[str, tuple[Spoil, str]]


@dataclass(frozen=True, slots=True)
class Attack:
    """`spoil` gets a folder with a good `model` and an empty `config`, and may do to them what it likes.

    `sentence` is all that is printed beside an answer, "" where nothing is wrong after all; {0} stands for the folder,
    and … for what a library adds. A `code` of 0 means that the model answers. `words` are added to the command line.
    """

    spoil: Spoil
    sentence: str
    code: int = 1
    words: tuple[str, ...] = ()

    def pattern(self, here: Path) -> str:
        """The sentence as a regular expression, where `here` is the folder."""
        parts = self.sentence.replace("{0}", str(here)).split("…")
        return ".*".join(re.escape(part) for part in parts)


Attacks = dict[str, Attack]


def refused(before: str, rows: Rows, *, hint: str = REPEAT, code: int = 1, words: tuple[str, ...] = ()) -> Attacks:
    """Attacks whose sentences begin with the same words, and give the same hint."""
    return {name: Attack(spoil, f"error: {before}{rest} {hint}", code, words) for name, (spoil, rest) in rows.items()}


def harmless(rows: Mapping[str, Spoil]) -> Attacks:
    """The model answers, and nothing is to be said."""
    return {name: Attack(spoil, "", code=0) for name, spoil in rows.items()}
