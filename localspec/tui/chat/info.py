"""The chat's current settings in words: context used, preset, seed. Knows no widget."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from localspec.core.events import Stats
from localspec.core.sanitize import one_line
from localspec.tui.chat.gain import UNKNOWN
from localspec.tui.themes import QUIET

NEARLY_FULL = 0.8


@dataclass(frozen=True, slots=True)
class ChatInfo:
    """The settings that were chosen. `download`: what is being downloaded."""

    preset: str | None = None
    seed: int | None = None
    download: str = ""


def info(now: ChatInfo, stats: Stats, width: int) -> Content:
    """The info that fits: the seed is left out first, then the preset, then the context."""
    used, load = context(stats), one_line(now.download)
    preset = f"preset {one_line(now.preset)}" if now.preset else ""
    seed = "" if now.seed is None else f"seed {now.seed}"
    ways = [(used, preset, seed, load), (used, preset, load), (used, load), (load,)]
    fitting = (found for found in map(joined, ways) if cell_len(found) <= width)
    words = next(fitting, "")
    tone = "bold $text-warning" if used and nearly_full(stats) else QUIET
    if not used or not words.startswith(used):
        return Content.styled(words, QUIET)
    return Content.assemble((used, tone), (words.removeprefix(used), QUIET))


def joined(parts: tuple[str, ...]) -> str:
    return " · ".join(part for part in parts if part)


def nearly_full(stats: Stats) -> bool:
    return stats.context_used >= NEARLY_FULL * stats.context_max


def context(stats: Stats) -> str:
    """Tokens used of those there are, and the share; with a warning once it matters. Not every server counts them while
    it writes."""
    if not stats.context_max:
        return ""
    if not stats.context_used:
        return f"ctx {UNKNOWN}/{stats.context_max:,}"
    share = 100 * stats.context_used / stats.context_max
    return f"ctx {stats.context_used:,}/{stats.context_max:,} {share:.0f} %{' full' if nearly_full(stats) else ''}"
