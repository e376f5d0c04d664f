"""The base of every program here: its flags, a bar on stderr, the report on stdout, one sentence for an error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar  # Any: argparse's

from localspec.bench.progress import Tell
from localspec.cli.io import print_error
from localspec.cli.progress import ProgressBar
from localspec.core.errors import Cancelled, LocalspecError, UsageError
from localspec.core.requests import MAX_DRAFT, read_draft_length


class Report(Protocol):
    def to_markdown(self) -> str: ...
    def to_json(self) -> str: ...
    def to_csv(self) -> str: ...


R = TypeVar("R", bound=Report)


class Arguments(argparse.ArgumentParser):
    """The flags of `python -m benchmarks.NAME`, with their defaults in its help."""

    def __init__(self, name: str, description: str | None) -> None:
        first = (description or "").partition("\n\n")[0].replace("\n", " ")
        super().__init__(
            prog=f"python -m benchmarks.{name}",
            description=first,
        )

    def add_argument(self, *flags: Any, **given: Any) -> argparse.Action:
        default = given.get("default")
        if default and default != argparse.SUPPRESS:
            given["help"] += f"; default: {default}"
        return super().add_argument(*flags, **given)

    def add_counts(self, tokens: int, repeats: int, *, of: str) -> None:
        self.add_tokens(tokens)
        self.add_argument("-r", "--repeats", type=at_least(1), default=repeats, metavar="N", help=of)

    def add_tokens(self, default: int | None) -> None:
        words = "tokens per answer" if default else "tokens per answer at most"
        self.add_argument("-n", "--max-tokens", type=at_least(8), default=default, metavar="N", help=words)

    def add_threads(self) -> None:
        self.add_argument("--threads", type=int, metavar="N", help="default: the physical cores, or measured")

    def add_output(self) -> None:
        self.add_argument("-o", "--output", choices=("md", "json", "csv"), default="md", help="format of the report")


def at_least(least: int) -> Callable[[str], int]:
    def number(word: str) -> int:
        if not word.isdecimal() or int(word) < least:
            raise argparse.ArgumentTypeError(f"'{word}' is not a number from {least} on")
        return int(word)

    return number


def show(measure: Callable[[Tell], R], output: str) -> R:
    """Measures, with a bar meanwhile, and prints the report."""
    with ProgressBar() as bar:
        report = measure(bar.show)
    print({"md": report.to_markdown, "json": report.to_json, "csv": report.to_csv}[output]())
    return report


def run(main: Callable[[Sequence[str]], None]) -> int:
    """The exit code; what cannot be measured is one sentence."""
    try:
        main(sys.argv[1:])
    except LocalspecError as fault:
        print_error(str(fault))
        return fault.exit_code
    except KeyboardInterrupt:
        return Cancelled.exit_code
    return 0


def read_shares(words: str | None) -> tuple[float, ...]:
    """Numbers from 0 to 1 with commas between; () for none."""
    try:
        found = tuple(float(word) for word in words.split(",")) if words else ()
    except ValueError:
        found = (-1.0,)
    if any(not 0 <= share <= 1 for share in found):
        raise UsageError(f"--agree is '{words}'; it takes shares from 0 to 1.", hint="Try: --agree 0.8,0.9")
    return found


def read_lengths(words: str) -> tuple[str, ...]:
    """Draft lengths with commas between."""
    found = tuple(words.split(","))
    if not all(k and read_draft_length(k) is not None for k in found):
        raise UsageError(f"--k is '{words}'; it takes lengths up to {MAX_DRAFT}.", hint="Try: --k 8,16")
    return found
