"""Who wrote a message, how and when, in a line. Knows no widgets."""

from __future__ import annotations

from localspec.core.sanitize import one_line
from localspec.history.text.lists import when
from localspec.tui.chat.conversation import Utterance


def details(said: Utterance) -> str:
    """The details, the most important first: a narrow screen cuts the end off."""
    made, own = said.made, ["edited by you"] if said.edited else []
    at = [when(said.at)] if said.at else []
    if made is None:
        return one_line(" · ".join([said.speaker, *own, f"{len(said.text):,} characters", *at]))
    stats = made.stats
    parts = [
        " ".join(part for part in (made.target, made.quant, made.device) if part),
        *own,
        *([f"read as: {stats.read_as}"] if stats.read_as else []),
        f"drafted by {made.draft}" if made.draft else "no draft",
        f"prompt {stats.prompt_n:,} tok, {stats.cached_n:,} cached",
        f"{stats.predicted_n:,} tok in {stats.rounds:,} rounds",
        *([str(stats.finish_reason)] if stats.finish_reason else []),
        *at,
    ]
    return one_line(" · ".join(parts))
