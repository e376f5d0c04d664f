"""Measures look-up's search: microseconds for one text of so many ids, none of which is left unread. Prints Markdown.

Ids are drawn by a power law, as words are; the last one stands in the text as often as chance has it.
"""

from __future__ import annotations

import argparse
import sys
from array import array
from collections.abc import Sequence
from random import Random
from statistics import median
from time import perf_counter_ns

from benchmarks.program import Arguments, at_least, run
from localspec.bench.tables import markdown
from localspec.core.requests import MAX_DRAFT
from localspec.engine.drafters.ngram import NgramFinder

SIZES = (2_000, 8_000, 32_000)
VOCABULARY = 49_152  # SmolLM2's
SEARCHES, TEXTS, SEED = 50, 40, 1


def text(size: int, dice: Random) -> array[int]:
    weights = [1 / (rank + 10) for rank in range(VOCABULARY)]
    return array("i", dice.choices(range(VOCABULARY), weights, k=size))


def microseconds(find: NgramFinder, ids: array[int], searches: int) -> float:
    """The fastest of some: what other programs take of the time is not the search's."""
    found = []
    for _ in range(searches):
        started = perf_counter_ns()
        find(ids, ids, MAX_DRAFT)
        found.append(perf_counter_ns() - started)
    return min(found) / 1000


def measure(searches: int) -> str:
    find, dice = NgramFinder(), Random(SEED)
    rows = [["ids", "median, µs", "longest, µs"]]
    for size in SIZES:
        took = [microseconds(find, text(size, dice), searches) for _ in range(TEXTS)]
        rows.append([f"{size:,}", f"{median(took):.1f}", f"{max(took):.1f}"])
    return markdown(rows)


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Arguments("lookup_scan", __doc__)
    parser.add_argument("-r", "--repeats", type=at_least(1), default=SEARCHES, metavar="N", help="searches of a text")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> None:
    print(measure(read_arguments(words).repeats))


if __name__ == "__main__":
    sys.exit(run(main))
