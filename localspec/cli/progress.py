"""Progress on stderr: a bar on a terminal, a line per tenth elsewhere, nothing for what takes under a second.

Knows Loading events and nothing about what is loaded.
"""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from time import monotonic
from typing import Self

from localspec.cli.io import print_notice
from localspec.core.events import Loading, Notice
from localspec.core.sanitize import one_line

PATIENCE_SECONDS = 1.0
WIDTH = 30


class ProgressBar:
    """Shows one bar at a time and wipes it at the end."""

    def __init__(self) -> None:
        self.started: float | None = None
        self.stage = ""
        self.shown_tenth = -1
        self.drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wipe()

    def wipe(self) -> None:
        if self.drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self.drawn = False

    def say(self, notice: Notice) -> None:
        """Prints a notice on a line of its own."""
        self.wipe()
        print_notice(notice)

    def show(self, event: Loading) -> None:
        self.started = self.started or monotonic()
        if monotonic() - self.started < PATIENCE_SECONDS:
            return
        if sys.stderr.isatty():
            self.drawn = True
            shown = one_line(bar_line(event))[: get_terminal_size().columns - 1]  # a wrapped line cannot be wiped
            print(f"\r\033[K{shown}", end="", file=sys.stderr, flush=True)
        else:
            self.print_line(event)

    def print_line(self, event: Loading) -> None:
        """Prints a line for each tenth of a stage; one for a stage that is a single step."""
        if event.stage != self.stage:
            self.stage, self.shown_tenth = event.stage, -1
        tenth = 10 * event.done // max(event.total, 1)
        if tenth > self.shown_tenth:
            self.shown_tenth = tenth
            print(one_line(percent_line(event, 10 * tenth)), file=sys.stderr)


def percent_line(event: Loading, percent: int) -> str:
    if event.unit == "steps":
        return bar_line(event)
    return f"measuring {percent} % · {event.stage}" if event.unit == "percent" else f"{event.stage} {percent} %"


def bar_line(event: Loading) -> str:
    if event.unit == "steps":
        return f"{event.stage} {event.done}/{event.total}" if event.total > 1 else event.stage
    share = event.done / max(event.total, 1)
    eta = f"  {event.eta_s:.0f} s left" if event.eta_s is not None and round(event.eta_s) else ""
    bar = f"{'█' * round(share * WIDTH):░<{WIDTH}} {share:4.0%}{eta}"
    return f"measuring {bar} · {event.stage}" if event.unit == "percent" else f"{event.stage} {bar}"
