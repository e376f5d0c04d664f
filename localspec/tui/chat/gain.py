"""The measured speed-up in words: how much, how sure, on which side of 1 for certain, and against what. Knows sums."""

from __future__ import annotations

from textual.content import Content

from localspec.core.events import Stats
from localspec.runtime.stats import PROBES_NEEDED
from localspec.tui.chat.explained import GAIN

UNKNOWN = "–"
NOT_YET = f"No speed-up yet: it takes {PROBES_NEEDED} rounds without a draft."
MEASURED = "measured in {rounds} without a draft"
UNSTEADY = "No speed-up: this machine's speed changes too much to compare rounds."


def gain(speedup: float | None, band: float | None, *, shows_band: bool = False) -> Content:
    """Coloured, and pointed up or down, where that is certain."""
    if speedup is None:
        return Content(f"×{UNKNOWN}")
    words = f"×{speedup:.2f}" + (f" ±{band:.2f}" if shows_band and band is not None else "")
    if not is_certain(speedup, band):
        return Content.styled(words, "bold")
    arrow, tone = ("▲", "$text-success") if speedup > 1 else ("▼", "$text-error")
    return Content.styled(f"{words} {arrow}", f"bold {tone}")


def is_certain(speedup: float | None, band: float | None) -> bool:
    """Whether it is certain that drafting made it faster, or slower: the whole 95 % interval is on one side of 1. The
    one rule for this, of the header, the panel and the comparison."""
    return speedup is not None and band is not None and abs(speedup - 1) > band


def plain(stats: Stats) -> float | None:
    """Tokens per second of the same answer without a draft. From the speed, so that the three figures agree: what comes
    beside the rounds, and the machine's hiccups, are in the speed, and the speed-up leaves them out."""
    return stats.predicted_per_second / stats.speedup if stats.speedup else None


def baseline(stats: Stats, probes: int) -> str:
    """The same in words, and what it is known from."""
    if (speed := plain(stats)) is None:
        return UNKNOWN
    return f"{speed:.1f} ({probes} probes)"


def cost(stats: Stats, band: float | None) -> str:
    """Why drafting slows an answer down, though most of a draft may be accepted; "" where that is not certain."""
    if stats.speedup is None or round(stats.speedup, 2) >= 1 or not is_certain(stats.speedup, band):
        return ""
    brings, costs = stats.tokens_per_step, stats.tokens_per_step / stats.speedup
    takes = f"takes as long as {costs:.1f} plain ones"
    return f"×{stats.speedup:.2f}, not faster: a round brings {brings:.1f} tokens, but {takes}"


def against(stats: Stats, band: float | None, probes: int) -> str:
    """The speed-up in a sentence, for who points at the figure."""
    if not stats.speedup:
        return UNSTEADY if stats.baseline_tps else NOT_YET
    found = gain(stats.speedup, band, shows_band=True)
    why = f" {found_slow}." if (found_slow := cost(stats, band)) else ""
    measured = MEASURED.format(rounds=f"{probes} rounds")
    pace = f"{plain(stats):,.0f} tokens per second ({measured})"
    return f"{found}: {GAIN.says}. Without drafting it would be about {pace}.{why}"
