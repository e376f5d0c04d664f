"""Whether one model can draft for another, for any two models on this machine, with the verdicts remembered.

Knows nothing about the hub or speed.
"""

from __future__ import annotations

from localspec.core.events import Record


class PairVerdict(Record, frozen=True):
    """Whether one model can draft for another. `reason`: "same", "padding", "controls-differ", "tokens-differ", …;
    `target_hash` and `drafter_hash` are of both tokenizers."""

    target: str
    drafter: str
    ok: bool
    reason: str
    detail: str
    target_hash: str = ""
    drafter_hash: str = ""


class Candidate(Record, frozen=True):
    """A model that might draft for a target, with its verdict; None: not compared yet. `on_disk`: nothing to fetch."""

    name: str
    num_bytes: int
    on_disk: bool
    verdict: PairVerdict | None = None
