"""The measured speed-up in words: how much, how sure, on which side of 1 for certain, and against what. Knows sums."""

from __future__ import annotations

from textual.content import Content

from localspec.events import Stats

UNKNOWN = "–"
NOT_YET = "No speed-up yet: it takes three rounds without a draft."


def gain(speedup: float | None, band: float | None, *, shows_band: bool = False) -> Content:
    """Coloured, and pointed up or down, where the whole band is on one side of 1."""
    if speedup is None:
        return Content(f"×{UNKNOWN}")
    words = f"×{speedup:.2f}" + (f" ±{band:.2f}" if shows_band and band is not None else "")
    if band is None or abs(speedup - 1) <= band:
        return Content.styled(words, "bold")
    arrow, tone = ("▲", "$text-success") if speedup > 1 else ("▼", "$text-error")
    return Content.styled(f"{words} {arrow}", f"bold {tone}")


def baseline(stats: Stats, probes: int) -> str:
    """Tokens per second without a draft, and how that is known."""
    if not stats.baseline_tps:
        return UNKNOWN
    source = f"probe ×{probes}" if stats.baseline_source == "probe" else stats.baseline_source
    return f"{stats.baseline_tps:.1f} ({source})"


def against(stats: Stats, band: float | None, probes: int) -> str:
    """The same in a sentence, for who points at the figure."""
    if not stats.speedup or not stats.baseline_tps:
        return NOT_YET
    measured = f"{gain(stats.speedup, band, shows_band=True)} over plain tok/s {baseline(stats, probes)}"
    return f"{measured}; hiccups of the machine count in neither"
