"""The words that the corpus is written in, as the built-in model's words.txt has them; localspec/models/spelling.py
reads it.

python -m training.words FILE writes them, without any training. Knows no network.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from localspec.core.whole_file import write_whole
from localspec.models.spelling import PIECE, words_of
from training import corpus
from training.corpus import Corpus
from training.tasks import WORDS, wordings

FILE = "words.txt"
ASKED = 10  # times in questions about localspec: then a slip may have meant it
OTHERS = """
    adopter alloy angel angle appealed asking auction audience beast bellow bleak boar bole brook casual catching cloak
    coaching coarse codon comb committee commuters commuting conceit concerted conform console consul cult cups courting
    cove cozy currant customs dawn daisy deem deprivation deprived derail deem devise director dose drifted drifting
    dripping ejected elated elect elected evacuate evacuation excuse expansive explode extent extensive faction farmer
    feast fiend fist foam forge fund funds garage gavel gout grub hurl inert insider intent invested invent lace latent
    legend lick lathe loaned loot loyal marching massage mating melting mental motel motels motions mourning naked niece
    noting oppose parity patents pauper pens pierce pinion plow poor potion predicate prefect prose purge
    """.split()  # noqa: SIM905 - ordinary words that the corpus has no use for, each a slip away from one that it has
HEAD = """\
# The words of the corpus, each in its spellings, the usual one first; made by python -m training.words.
# An unknown word is read as one of the first part that is a slip away. Those behind the empty line are only known.
"""


def placed(text: str) -> Iterator[tuple[str, bool]]:
    """Each word outside quotes, and whether it begins a sentence, where its capital says nothing."""
    begins = True
    for piece in PIECE.finditer(text):
        for word in words_of(piece):
            if any(map(str.isalpha, word)):
                yield word, begins
            begins = False
        begins = (piece["after"] or "").endswith((".", "!", "?", ":"))


def spellings(texts: Iterable[str]) -> dict[str, list[str]]:
    """Maps each word in small letters to its spellings, most often first; small, where it only ever begins sentences
    with a capital."""
    found, seen = defaultdict[str, Counter[str]](Counter), dict[str, None]()
    for text in texts:
        for word, begins in placed(text):
            seen.setdefault(word.casefold())
            if not (begins and word.istitle() and word.isalpha()):
                found[word.casefold()][word] += 1
    return {word: usual_first(found[word]) or [word] for word in seen}


def usual_first(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda spelling: (-counts[spelling], spelling))


def render(text: Corpus) -> str:
    """words.txt."""
    asked = [question for entry in text.known for question in entry.phrasings]
    often = Counter(word.casefold() for question in asked for word, _ in placed(question))
    others = [*text.unknown, *text.follow_ups.values(), *wordings().values()]
    answers = [answer for entry in text.known for answer in (entry.answer, *entry.follow_ups.values())]
    asides = [question for entry in others for question in entry.phrasings]
    asides += [question for thens in text.then.values() for then in thens for question in then.phrasings]
    known = spellings([*asked, *asides, *answers, text.fallback, *text.systems, *text.stories, *WORDS, *OTHERS])
    lines = {word: " ".join(spelled) for word, spelled in sorted(known.items())}
    first = [line for word, line in lines.items() if often[word] >= ASKED]
    return HEAD + "\n".join([*first, "", *(line for word, line in lines.items() if often[word] < ASKED)]) + "\n"


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def main(file: Path) -> None:
    """Write the words of the corpus to FILE."""
    write_whole(file, render(corpus.load()).encode())


if __name__ == "__main__":
    main()
