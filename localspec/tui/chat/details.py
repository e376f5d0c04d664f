"""Who wrote a message, how and when, in a line. Knows no widgets."""

from __future__ import annotations

from localspec.core.sanitize import one_line
from localspec.history.text.lists import when
from localspec.tui.chat.conversation import Utterance


def details(utterance: Utterance) -> str:
    """The details, the most important first: a narrow screen cuts the end off."""
    made, own = utterance.made, ["edited by you"] if utterance.edited else []
    at = [when(utterance.at)] if utterance.at else []
    if made is None:
        return one_line(" · ".join([utterance.speaker, *own, f"{len(utterance.text):,} characters", *at]))
    stats = made.stats
    parts = [
        " ".join(part for part in (made.target, made.quant, made.device) if part),
        *own,
        *([f"read as: {stats.read_as}"] if stats.read_as else []),
        f"drafted by {made.draft}" if made.draft else "no draft",
        f"prompt {stats.prompt_n:,} tok, {stats.cached_n:,} cached",
        f"{stats.predicted_n:,} tok in {stats.rounds:,} rounds",
        *([f"{stats.predicted_per_second:.1f} tok/s"] if stats.predicted_n else []),
        *([f"×{stats.speedup:.2f}"] if stats.speedup else []),
        *([str(stats.finish_reason)] if stats.finish_reason else []),
        *at,
    ]
    return one_line(" · ".join(parts))
