"""Progress of a download on stderr: a bar with rate and time left on a terminal, a line per tenth elsewhere.

Knows the hub's events and nothing about what is fetched.
"""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from typing import Self

from localspec.cli.io import print_note
from localspec.core.sanitize import one_line
from localspec.core.sizes import of_words, rate_words, size_words
from localspec.hub.records import STAGES, Progress, Retrying

WIDTH = 20
IN_BYTES = ("checking", "downloading")


class TransferBar:
    """One bar at a time, wiped before anything else is printed."""

    def __init__(self) -> None:
        self.step: tuple[str, str, int] = ("", "", -1)  # repository, stage, tenth
        self.slow_step = self.step  # the last that was shown as slow
        self.drawn = 0  # characters
        self.last: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wipe()

    def show(self, event: Progress) -> None:
        self.last = event
        if sys.stderr.isatty():
            line = bar_line(event)[: get_terminal_size().columns - 1]
            print(f"{self.erasing()}{line}", end="", file=sys.stderr, flush=True)
            self.drawn = len(line)
            return
        tenth = 10 * event.done // event.total if is_in_bytes(event) else 0
        step = (event.repo, event.stage, tenth)
        if step != self.step or (event.slow and step != self.slow_step):
            self.step, self.slow_step = step, step if event.slow else self.slow_step
            print_note(percent_line(event, 10 * tenth))

    def retry(self, event: Retrying) -> None:
        self.wipe()
        print_note(f"{sentence(event.reason)} Trying again in {event.seconds:.0f} s; progress is kept.")

    def wipe(self) -> None:
        if self.drawn:
            print(self.erasing(), end="", file=sys.stderr, flush=True)
            self.drawn = 0

    def erasing(self) -> str:
        """What erases the line that is drawn, also where a window that became narrower has made several rows of it."""
        rows = max(0, self.drawn - 1) // get_terminal_size().columns
        return "\r" + (f"\033[{rows}A" if rows else "") + "\033[J"


def sentence(reason: str) -> str:
    """A reason, as the hub's process gives it inside its own sentences, as one of its own."""
    words = one_line(reason).rstrip(".")
    return f"{words[:1].upper()}{words[1:]}."


def is_in_bytes(event: Progress) -> bool:
    return event.stage in IN_BYTES and event.total > 0


def percent_line(event: Progress, percent: int) -> str:
    stage = STAGES[event.stage]
    if not is_in_bytes(event):
        return f"{stage}: {one_line(event.repo)}"
    slow = f", {rate_words(event.bytes_per_second, slow=True)}" if event.slow and event.bytes_per_second else ""
    return f"{stage} {percent} %: {amount(event)}{slow}, {one_line(event.repo)}"


def bar_line(event: Progress) -> str:
    if not is_in_bytes(event):
        return f"  {STAGES[event.stage]} …"
    bar = f"{'█' * (WIDTH * event.done // event.total):░<{WIDTH}}"
    parts = [f"  {bar}", amount(event)]
    if event.stage == "checking":
        parts.append(STAGES[event.stage])
    if event.bytes_per_second is not None:
        parts.append(rate_words(event.bytes_per_second, slow=event.slow))
    if event.eta_s is not None:
        parts.append(time_words(event.eta_s))
    if event.resumed:
        parts.append(f"({size_words(event.resumed)} were here)")
    return "   ".join(parts)


def amount(event: Progress) -> str:
    """How much has come."""
    return of_words(event.done, event.total)


def time_words(seconds: float) -> str:
    """A span in the two largest units that matter."""
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    minutes = whole // 60
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
