"""A server's totals, from its Prometheus text: what one answer changed in them, where no other client's can be in it.

Knows no sockets.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from localspec.remote.figures import Figures, drafts

MOST_TEXT = 4 << 20  # bytes
LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{[^\n]*\})? ([0-9.eE+-]+)(?: \d+)?$", re.MULTILINE)
NAMES = {
    "vllm:spec_decode_num_drafts": "rounds",
    "vllm:spec_decode_num_draft_tokens": "drafted",
    "vllm:spec_decode_num_accepted_tokens": "accepted",
    "vllm:generation_tokens": "written",
    "llamacpp:spec_decode_num_drafts": "rounds",
    "llamacpp:spec_decode_num_draft_tokens": "drafted",
    "llamacpp:spec_decode_num_accepted_tokens": "accepted",
    "llamacpp:tokens_predicted": "written",
}


@dataclass(frozen=True, slots=True)
class ServerTotals:
    """Counts since the server's start. `has_drafts`: it counts them at all, as it does where something drafts."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    written: int = 0
    has_drafts: bool = False

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None


def read(text: str) -> ServerTotals:
    """The totals in a page of metrics; labels are summed over. The client library ends a counter's name in _total."""
    sums: dict[str, float] = {}
    for name, value in LINE.findall(text):
        if (field := NAMES.get(name.removesuffix("_total"))) and (number := counted(value)) is not None:
            sums[field] = sums.get(field, 0) + number
    return ServerTotals(**{name: int(value) for name, value in sums.items()}, has_drafts="rounds" in sums)


def counted(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number < 1e15 else None


def of_one_answer(figures: Figures, before: ServerTotals | None, after: ServerTotals | None) -> Figures:
    """The figures with what moved between the two, if one answer can have moved it; else `shared`."""
    if before is None or after is None or not after.has_drafts:
        return figures
    rounds, drafted = after.rounds - before.rounds, after.drafted - before.drafted
    accepted, written = after.accepted - before.accepted, after.written - before.written
    if min(rounds, drafted, accepted, written) < 0 or not rounds:  # it was started anew, or nothing was drafted
        return figures
    tokens = figures.predicted_n
    # A round writes what it accepted and one more; the last may be cut by the end of the answer.
    longest = -(-drafted // rounds)
    is_one = tokens is not None and rounds <= tokens and rounds + accepted <= tokens + longest
    if not is_one or (written and written != tokens):
        return figures.with_(shared=True)
    return drafts(figures, drafted, accepted, rounds=rounds)
