"""Everything measured of an answer, beside it: speed, speed-up with its band, acceptance, shares, memory, context.

Reads sums and rounds; knows no engine. The screen's width decides whether it is there, until the user does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget

from localspec.core.blocks import bar, column, grouped, meter, per_cell
from localspec.core.events import SpecCard, Stats, Step
from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.tui.chat.draft_length import length, why_off
from localspec.tui.chat.gain import UNKNOWN, baseline, gain

LEAST_WIDTH, WIDE = 80, 120
LABEL = 9  # columns of the names on the left
LEAST_BAR = 4
QUIET = "$foreground-muted"


@dataclass(frozen=True, slots=True)
class Reading:
    """The figures to show: sums, half the speed-up's 95 % interval, plain rounds timed so far, the answer's rounds,
    the drafter, and the device's name and whole memory.
    """

    stats: Stats
    band: float | None = None
    probes: int = 0
    rounds: Sequence[Step] = ()
    spec: SpecCard | None = None
    device: str = ""
    device_bytes: int = 0


def panel(reading: Reading, width: int, height: int) -> Content:
    """Lines of `width`, the most important first. What does not fit into `height` is left out: positions in the
    draft before other lines, and of either the last ones first."""
    stats, drafts = reading.stats, reading.stats.draft_kind != "off"
    above = [pace(reading.rounds, stats, width), *(drafted(reading) if drafts else [])]
    below = [*drafting(reading, width), context(stats, width), row("memory", memory(stats))]
    below += [*share_of_device(reading, width), *(shares(stats) if drafts else []), reads(stats)]
    places = by_place(stats, width)[: max(0, height - len(above) - len(below))]
    return Content("\n").join([*above, *places, *below][:height])


def row(label: str, value: str, style: str = "") -> Content:
    return Content.assemble((label.ljust(LABEL), QUIET), (value, style))


def pace(rounds: Sequence[Step], stats: Stats, width: int) -> Content:
    """Tokens per second over the answer so far, and as a whole."""
    now = f" {stats.predicted_per_second:.1f} tok/s" if stats.predicted_n else f" {UNKNOWN} tok/s"
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


def drafted(reading: Reading) -> list[Content]:
    """Lines with the gain of drafting; the speed is the plain one times the speed-up."""
    stats = reading.stats
    speedup = row("speed-up", "") + gain(stats.speedup, reading.band, shows_band=True)
    return [row("plain", baseline(stats, reading.probes)), speedup, acceptance(stats), row("per step", per_step(stats))]


def acceptance(stats: Stats) -> Content:
    rate, tested = stats.acceptance_rate, stats.draft_n_accepted + stats.draft_n_rejected
    counted = f"{short(stats.draft_n_accepted)}/{short(tested)}"
    return row("accepted", f"{100 * rate:.0f} % ({counted})" if rate is not None else UNKNOWN)


def per_step(stats: Stats) -> str:
    return f"{stats.tokens_per_step:.1f} tok" if stats.rounds else UNKNOWN


def by_place(stats: Stats, width: int) -> list[Content]:
    """How often each place of a draft was accepted, of the drafts that were so long."""
    found = []
    for number, share in enumerate(stats.accept_per_pos, start=1):
        label, percent = f"place {number}".ljust(LABEL), f" {100 * share:.0f} %".rjust(6)
        length = max(LEAST_BAR, width - len(label) - len(percent))
        found.append(Content.assemble((label, QUIET), (bar(share, length), "$text-success"), percent))
    return found


def shares(stats: Stats) -> list[Content]:
    """The shares of drafting and verifying in the time of the answer."""
    if not stats.predicted_ms:
        return [row("draft", UNKNOWN)]
    draft, verify = (100 * spent / stats.predicted_ms for spent in (stats.draft_ms, stats.verify_ms))
    return [row("draft", f"{draft:.0f} % · verify {verify:.0f} %")]


def held(stats: Stats) -> int:
    return stats.target_bytes + stats.drafter_bytes + stats.kv_bytes


def memory(stats: Stats) -> str:
    peak = f" · peak {size_words(stats.peak_bytes)}" if stats.peak_bytes else ""
    return f"{size_words(held(stats))}{peak}" if held(stats) else UNKNOWN


def share_of_device(reading: Reading, width: int) -> list[Content]:
    """How much of its memory that is, where both are known."""
    taken, total = held(reading.stats), reading.device_bytes
    if not taken or not total:
        return []
    words = f" {taken / 1e9:.1f}/{total / 1e9:.1f} GB"
    label = "RAM" if reading.device == "cpu" else "VRAM"
    return [row(label, meter(taken / total, max(LEAST_BAR, width - LABEL - len(words))) + words)]


def context(stats: Stats, width: int) -> Content:
    if not stats.context_max:
        return row("context", UNKNOWN)
    words = f" {short(stats.context_used)}/{short(stats.context_max)}"
    length = max(LEAST_BAR, width - LABEL - len(words))
    return row("context", meter(stats.context_used / stats.context_max, length) + words)


def drafting(reading: Reading, width: int) -> list[Content]:
    """How it is switched, and how far it goes or why it does not."""
    if reading.spec is None:
        return []
    said = (reading.spec.switch, length(reading.spec, reading.rounds) or why_off(reading.spec))
    return [row("spec", one_line(" · ".join(part for part in said if part))).truncate(width, ellipsis=True)]


def short(count: int) -> str:
    return f"{count / 1000:.1f}k" if count >= 1000 else str(count)


def reads(stats: Stats) -> Content:
    """Weight bytes per second, of those that the memory gives; known when the answer has ended."""
    if not stats.bandwidth_peak_gbs:
        return row("reads", UNKNOWN)
    found = f"{stats.bandwidth_gbs:.0f}" if stats.bandwidth_gbs else UNKNOWN
    return row("reads", f"{found} of {stats.bandwidth_peak_gbs:.0f} GB/s")


def shown(width: int, wish: bool | None) -> bool:
    """Whether the panel is shown: never below 80 columns; from 120 on unless the user hid it; between if the user
    asked for it."""
    return width >= LEAST_WIDTH and (width >= WIDE if wish is None else wish)


class SpeedPanel(Widget):
    """Shows the figures beside the transcript where that is wide, else over it. Calls `read` when it is drawn, not
    while it is hidden."""

    ALLOW_SELECT = False

    def __init__(self, read: Callable[[], Reading]) -> None:
        super().__init__()
        self.read = read
        self.border_title = "Speed"
        self.wish: bool | None = None
        self.display = False
        self._drawn: list[Content] = []

    @property
    def covers(self) -> bool:
        return self.display and self.has_class("-over")

    def settle(self, width: int) -> None:
        """The screen is so wide now."""
        self.display = shown(width, self.wish)
        self.set_class(width < WIDE, "-over")

    def toggle(self, width: int) -> None:
        self.wish = not self.display
        self.settle(width)

    def follow(self) -> None:
        """Draws the lines that have changed."""
        if self.display:
            lines = panel(self.read(), *self.content_size).split("\n")
            pairs = enumerate(zip_longest(self._drawn, lines, fillvalue=Content()))
            changed = [Region(0, y, self.content_size.width, 1) for y, (old, new) in pairs if not old.is_same(new)]
            self._drawn = lines
            if changed:
                self.refresh(*changed)

    def render(self) -> Content:
        found = panel(self.read(), *self.content_size)
        self._drawn = found.split("\n")
        return found
