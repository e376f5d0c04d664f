"""Everything measured of an answer, beside it: speed, speed-up with its band, acceptance, context; then the rest.

Reads sums and rounds; knows no engine. The screen's width decides whether it is there, until the user does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from textual.content import Content
from textual.geometry import Region, Size
from textual.widget import Widget

from localspec.core.blocks import bar, column, grouped, meter, per_cell
from localspec.core.events import SpecCard, Stats, Step
from localspec.core.sanitize import one_line
from localspec.core.server_speculation import is_served, speculation
from localspec.core.sizes import size_words
from localspec.engine.drafters.table import kind_name
from localspec.tui.chat.draft_length import words
from localspec.tui.chat.gain import UNKNOWN, baseline, gain
from localspec.tui.themes import QUIET

LEAST_WIDTH, WIDE = 80, 140
MOST_LINES = 99
Fold = Literal["hidden", "folded", "whole"]
FOLDS: dict[str, Fold | None] = {"auto": None, "on": "folded", "off": "hidden"}  # as the settings have them
NEXT: dict[Fold, Fold] = {"hidden": "folded", "folded": "whole", "whole": "hidden"}
LABEL = 9  # columns of the names on the left
LEAST_BAR = 4
ENDS = {1: "st", 2: "nd", 3: "rd"}


@dataclass(frozen=True, slots=True)
class SpeedReading:
    """The figures to show: sums, half the speed-up's 95 % interval, plain rounds timed so far, the answer's rounds,
    the drafter, and the device's name and whole memory. `rounds_before`: of the rounds, those that another drafter, or
    this one before it was loaded again, drafted for.
    """

    stats: Stats
    band: float | None = None
    probes: int = 0
    rounds: Sequence[Step] = ()
    spec: SpecCard | None = None
    device: str = ""
    device_bytes: int = 0
    rounds_before: int = 0

    @property
    def own_rounds(self) -> Sequence[Step]:
        return self.rounds[self.rounds_before :] if self.rounds_before else self.rounds


def panel(reading: SpeedReading, width: int, height: int, *, whole: bool = True) -> Content:
    """Lines no wider than `width`, the most important first: four of them, or all. What does not fit into `height` is
    left out: positions in the draft before other lines, and of either the last ones first."""
    found = folded(reading, width)
    if whole:
        above = [*found, *by_drafter(reading.stats, width), *gained(reading)]
        below = [*spent(reading), *kept(reading, width)]
        found = [*above, *by_position(reading.stats, width)[: max(0, height - len(above) - len(below))], *below]
    return Content("\n").join(line.truncate(width, ellipsis=True) for line in found[:height])


def folded(reading: SpeedReading, width: int) -> list[Content]:
    """Speed, speed-up, acceptance, context; where drafting slows down, its cost too."""
    stats, pace = reading.stats, speed_line(reading.rounds, reading.stats, width)
    if is_served(stats):
        return [pace, row("drafts", speculation(stats).removeprefix("speculation: ")), context(stats, width)]
    if not drafts(reading):
        return [pace, context(stats, width)]
    speedup = row("speed-up", "") + gain(stats.speedup, reading.band, shows_band=True)
    cost = [share_of_time(stats)] if is_slower(stats) else []
    return [pace, speedup, *cost, acceptance(stats), context(stats, width)]


def drafts(reading: SpeedReading) -> bool:
    """Whether there is anything to say of drafts: some were made, or the next round may make one."""
    if reading.stats.draft_kind == "off" or is_served(reading.stats):
        return False
    return bool(reading.stats.draft_rounds) or reading.spec is None or reading.spec.switch != "off"


def is_slower(stats: Stats) -> bool:
    return stats.speedup is not None and stats.speedup < 1


def gained(reading: SpeedReading) -> list[Content]:
    """What the speed would be without drafts: the speed divided by the speed-up."""
    stats = reading.stats
    if not drafts(reading):
        return []
    return [row("plain", baseline(stats, reading.probes)), row("a round", per_round(stats))]


def spent(reading: SpeedReading) -> list[Content]:
    """How far drafts go, and the time they take."""
    if not drafts(reading):
        return []
    cost = [] if is_slower(reading.stats) else [share_of_time(reading.stats)]
    return [*([row("drafts", words(reading.spec, reading.own_rounds))] if reading.spec else []), *cost]


def kept(reading: SpeedReading, width: int) -> list[Content]:
    stats = reading.stats
    memory = row("memory", size_words(held(stats)) if held(stats) else UNKNOWN)
    peak = [row("peak", size_words(stats.peak_bytes))] if stats.peak_bytes else []
    return [memory, *peak, *share_of_device(reading, width)]


def row(label: str, value: str, style: str = "") -> Content:
    return Content.assemble((label.ljust(LABEL), QUIET), (value, style))


def speed_line(rounds: Sequence[Step], stats: Stats, width: int) -> Content:
    """Tokens per second over the answer so far, and as a whole."""
    now = f" {stats.predicted_per_second:.1f} tok/s" if stats.predicted_ms else f" {UNKNOWN} tok/s"
    return Content.assemble((sparkline(rounds, width - len(now)), "$text-accent"), (now, "bold"))


def sparkline(rounds: Sequence[Step], width: int) -> str:
    """One column for each round, or for as many as must share one; the highest is the fastest."""
    speeds = [speed(shared) for shared in grouped(rounds, per_cell(len(rounds), width))]
    fastest = max(speeds, default=0.0)
    return "".join(column(one / fastest if fastest else 0.0) for one in speeds)


def speed(rounds: Sequence[Step]) -> float:
    """Tokens per millisecond."""
    spent = sum(step.draft_ms + step.verify_ms for step in rounds)
    return sum(len(step.tokens) for step in rounds) / spent if spent else 0.0


def acceptance(stats: Stats) -> Content:
    rate, tested = stats.acceptance_rate, stats.draft_n_accepted + stats.draft_n_rejected
    counted = f"{short(stats.draft_n_accepted)}/{short(tested)}"
    return row("accepted", f"{100 * rate:.0f} % ({counted})" if rate is not None else UNKNOWN)


def by_drafter(stats: Stats, width: int) -> list[Content]:
    """How often the tokens of each kind of drafter were accepted, where there was more than one kind."""
    if len(stats.by_drafter) < 2:
        return []
    named = [(one_line(kind_name(kind)), sums.acceptance_rate) for kind, sums in sorted(stats.by_drafter.items())]
    longest = max(len(name) for name, _ in named)
    return [share_bar(name.ljust(longest), share, width) for name, share in named]


def share_bar(label: str, share: float | None, width: int) -> Content:
    """A share as a bar after its label; without a bar where it is not known."""
    percent = f" {100 * share:.0f} %".rjust(6) if share is not None else f" {UNKNOWN}".rjust(6)
    length = max(LEAST_BAR, width - len(label) - 1 - len(percent))
    return Content.assemble((f"{label} ", QUIET), (bar(share or 0.0, length), "$text-success"), percent)


def per_round(stats: Stats) -> str:
    return f"{stats.tokens_per_step:.1f} tok" if stats.rounds else UNKNOWN


def by_position(stats: Stats, width: int) -> list[Content]:
    """How often each token of a draft was accepted, of the drafts that were so long."""
    shares = enumerate(stats.accept_per_pos, start=1)
    return [share_bar(f"{ordinal(number)} token", share, width) for number, share in shares]


def share_of_time(stats: Stats) -> Content:
    share = f"{100 * stats.draft_ms / stats.predicted_ms:.0f} % of the time" if stats.predicted_ms else UNKNOWN
    return row("drafting", share)


def held(stats: Stats) -> int:
    return stats.target_bytes + stats.drafter_bytes + stats.kv_bytes


def share_of_device(reading: SpeedReading, width: int) -> list[Content]:
    """How much of its memory that is, where both are known: of main memory the peak, which counts the whole program."""
    taken, total = held(reading.stats), reading.device_bytes
    if not taken or not total:
        return []
    if reading.device == "cpu":
        label, taken = "RAM", max(taken, reading.stats.peak_bytes)
    else:
        label = "VRAM"
    words = f" {taken / 1e9:.1f}/{total / 1e9:.1f} GB"
    return [row(label, meter(taken / total, max(LEAST_BAR, width - LABEL - len(words))) + words)]


def context(stats: Stats, width: int) -> Content:
    if not stats.context_max:
        return row("context", UNKNOWN)
    words = f" {short(stats.context_used) if stats.context_used else UNKNOWN}/{short(stats.context_max)}"
    length = max(LEAST_BAR, width - LABEL - len(words))
    return row("context", meter(stats.context_used / stats.context_max, length) + words)


def ordinal(number: int) -> str:
    return f"{number}{ENDS.get(number if number < 20 else number % 10, 'th')}"


def short(count: int) -> str:
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 100_000 else f"{count / 1000:.0f}k"


def shown(width: int, chosen: Fold | None) -> Fold:
    """How much of the panel is shown: nothing below 80 columns; from there on what the user chose, and where
    nothing was chosen four lines from 140 on."""
    if width < LEAST_WIDTH:
        return "hidden"
    return chosen or ("folded" if width >= WIDE else "hidden")


class SpeedPanel(Widget):
    """Shows the figures beside the transcript where that is wide, else over it. Calls `read` when it is drawn, not
    while it is hidden. `chosen` is by the user."""

    ALLOW_SELECT = False

    def __init__(self, read: Callable[[], SpeedReading]) -> None:
        super().__init__()
        self.read = read
        self.border_title = "Speed"
        self.chosen: Fold | None = None
        self.fold: Fold = "hidden"
        self.display = False
        self._drawn: list[Content] = []
        self._laid_out: tuple[int, int, Fold] = 0, 0, "hidden"  # so many lines of such a width

    @property
    def covers(self) -> bool:
        return self.display and self.has_class("-over")

    def settle(self, width: int) -> None:
        """The screen is so wide now."""
        before, self.fold = self.fold, shown(width, self.chosen)
        self.display = self.fold != "hidden"
        self.set_class(width < WIDE, "-over")
        if before != self.fold:
            self.refresh(layout=True)

    def cycle(self, width: int) -> None:
        """Four lines, then all, then none."""
        self.chosen = NEXT[self.fold]
        self.settle(width)

    def hide(self, width: int) -> None:
        self.chosen = "hidden"
        self.settle(width)

    def lines(self, width: int, height: int) -> list[Content]:
        return panel(self.read(), width, height, whole=self.fold == "whole").split("\n")

    def follow(self) -> None:
        """Draws the lines that have changed; all of them, laid out again, where their number has."""
        if not self.display:
            return
        width, height = self.content_size
        lines = self.lines(width, MOST_LINES)
        if len(lines) != self._laid_out[0]:
            self._laid_out = len(lines), width, self.fold
            self.refresh(layout=True)
            return
        lines = lines if len(lines) <= height else self.lines(width, height)
        pairs = enumerate(zip_longest(self._drawn, lines, fillvalue=Content()))
        changed = [Region(0, y, width, 1) for y, (old, new) in pairs if not old.is_same(new)]
        self._drawn = lines
        if changed:
            self.refresh(*changed)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        if self._laid_out[1:] != (width, self.fold):
            self._laid_out = len(self.lines(width, MOST_LINES)), width, self.fold
        return self._laid_out[0]

    def render(self) -> Content:
        self._drawn = self.lines(*self.content_size)
        return Content("\n").join(self._drawn)
