"""Measures the cost of the chat's screen: how much slower the chat is than `run`, how soon it shows a key, when it
first paints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.program import Arguments, run, show
from benchmarks.shapes.random_weights import SHAPES
from benchmarks.ui.report import UiReport
from localspec.bench.progress import Tell, shares
from localspec.core.errors import UsageError
from localspec.core.weight_formats import auto_formats

SHAPE, TOKENS, REPEATS = "llama-1b", 512, 5


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Arguments("ui", __doc__)
    parser.add_argument("--shape", choices=tuple(SHAPES), default=SHAPE, help="what the model is like in size")
    parser.add_argument(
        "--format", choices=[str(row) for row in auto_formats("cpu", packed=True)], default="int8", help="weight format"
    )
    parser.add_argument(
        "--downloading",
        action="store_true",
        help="while a download reports its progress, in the chat and in its list over it",
    )
    parser.add_counts(TOKENS, REPEATS, of="answers of each, and starts")
    parser.add_output()
    return parser.parse_args(words)


def main(words: Sequence[str]) -> None:
    given = read_arguments(words)
    if sys.platform == "win32":
        raise UsageError("The screen is measured in a terminal of Unix.", hint="Use Linux, macOS or WSL.")
    from benchmarks.ui.measure import Plan, measure_ui

    def measure(tell: Tell) -> UiReport:
        played = Plan(given.shape, given.format, given.max_tokens, given.repeats, given.downloading)
        return measure_ui(played, shares(tell, "the chat"))

    show(measure, given.output)


if __name__ == "__main__":
    sys.exit(run(main))
