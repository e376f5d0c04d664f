"""What each piece of the chat's work on Textual buys: the screen's processor time without it, frame by frame.

    python -m benchmarks.pieces
    python -m benchmarks.pieces lists fence --text long -r 3

Each run is a chat of its own in a terminal without a screen; the pieces take turns with the chat as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from select import select
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any  # Any: JSON

from benchmarks.program import Arguments, at_least, run, show
from benchmarks.terminal import Terminal
from benchmarks.ui.measure import within
from benchmarks.ui.report import percentile
from localspec.bench.progress import Tell, shares
from localspec.bench.tables import csv_text, markdown
from localspec.core.errors import EngineError, UsageError

NAMES = (
    *("painter", "aside", "scroll", "tall", "pile", "growing-text", "lines-ahead", "paragraph", "fence", "leaves"),
    *("lists", "joined", "collector", "code-rule", "figures-rule", "all"),
)
FRAME_MS, RUN_SECONDS = 50.0, 300.0
ROUNDS, MESSAGES = 3, 20


@dataclass(frozen=True)
class Report:
    """The frames of each run, in milliseconds, by the piece that was taken out; `none` comes first."""

    text: str
    messages: int
    runs: dict[str, list[list[float]]]

    def rows(self) -> list[dict[str, Any]]:
        return [row(piece, runs) for piece, runs in self.runs.items()]

    def to_markdown(self) -> str:
        head = ["without", "share of a core", "of each run", "frame, mean ms", "p95", "longest"]
        lines = [
            [one["without"], f"{one['share']:.3f}", " ".join(f"{share:.3f}" for share in one["shares"])]
            + [f"{one[name]:.1f}" for name in ("mean_ms", "p95_ms", "longest_ms")]
            for one in self.rows()
        ]
        return f"{self.text} text, {self.messages} messages before it, processor time\n\n{markdown([head, *lines])}"

    def to_json(self) -> str:
        return json.dumps({"text": self.text, "messages": self.messages, "rows": self.rows(), "runs": self.runs})

    def to_csv(self) -> str:
        return csv_text(self.rows())


def row(piece: str, runs: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Medians over the runs."""
    found = [mean(frames) / FRAME_MS for frames in runs]
    return {
        "without": piece,
        "share": median(found),
        "shares": found,
        "mean_ms": median(mean(frames) for frames in runs),
        "p95_ms": median(percentile(frames, 0.95) for frames in runs),
        "longest_ms": median(max(frames) for frames in runs),
    }


def frames_without(piece: str, text: str, messages: int) -> list[float]:
    """Milliseconds of every frame of one answer."""
    ours, theirs = os.pipe()
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.pieces.played", piece, text, str(messages), str(theirs)]
        terminal = Terminal(command, pass_fds=(theirs,), env=within(folder))
        os.close(theirs)
        try:
            heard = b""
            while not heard.endswith(b"\n"):
                read = os.read(ours, 1 << 16) if select([ours], [], [], RUN_SECONDS)[0] else b""
                if not read:
                    raise EngineError(f"The chat without '{piece}' did not answer.", hint="Run it by hand to see why.")
                heard += read
        finally:
            terminal.close()
            os.close(ours)
    return [float(taken) for taken in json.loads(heard)]


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Arguments("pieces", __doc__)
    parser.add_argument("pieces", nargs="*", metavar="PIECE", help=f"what is taken out: {', '.join(NAMES)}; else each")
    parser.add_argument("--text", choices=("long", "short", "code"), default="long", help="what is written")
    parser.add_argument("--messages", type=at_least(0), default=MESSAGES, metavar="N", help="in the chat before it")
    parser.add_argument("-r", "--rounds", type=at_least(1), default=ROUNDS, metavar="N", help="runs of each")
    parser.add_output()
    return parser.parse_args(words)


def main(words: Sequence[str]) -> None:
    given = read_arguments(words)
    if unknown := next((name for name in given.pieces if name not in NAMES), None):
        raise UsageError(f"There is no piece '{unknown}'.", hint=f"Try one of: {', '.join(NAMES)}")
    if sys.platform == "win32":
        raise UsageError("The screen is measured in a terminal of Unix.", hint="Use Linux, macOS or WSL.")

    def measure(tell: Tell) -> Report:
        report = shares(tell, "the chat")
        runs: dict[str, list[list[float]]] = {name: [] for name in ("none", *(given.pieces or NAMES))}
        report(0.0)
        for number in range(given.rounds):
            for place, (name, frames) in enumerate(runs.items(), start=1):
                frames.append(frames_without(name, given.text, given.messages))
                report((number + place / len(runs)) / given.rounds)
        return Report(given.text, given.messages, runs)

    show(measure, given.output)


if __name__ == "__main__":
    sys.exit(run(main))
