"""Scores offers on the text that came: what a look-up would have got right is known without drafting it.

Not-a-Bandit, arXiv 2510.20064: every drafter learns from every round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localspec.core.requests import MAX_DRAFT
from localspec.engine.policy.arms import Arm
from localspec.engine.protocols import Offer


class Hindsight:
    """Compares the known tokens of offers with those that were committed. One offer that was right so far is followed
    into the next rounds, so that plain decoding teaches about later positions, too."""

    def __init__(self) -> None:
        self.followed: Offer | None = None
        self.right = 0  # tokens of it that came

    def observe(self, asked: Sequence[Offer], tokens: Sequence[int], arms: Mapping[str, Arm]) -> None:
        if self.followed is not None:
            self.follow(self.followed, self.right, tokens, arms)
        for offer in asked:
            if offer.tokens:
                right = score(offer, 0, tokens, arms[offer.drafter])
                if right and self.followed is None:
                    self.followed, self.right = offer, right

    def follow(self, offer: Offer, start: int, tokens: Sequence[int], arms: Mapping[str, Arm]) -> None:
        right = score(offer, start, tokens, arms[offer.drafter])
        self.followed, self.right = (offer, right) if right else (None, 0)

    def drop(self) -> None:
        """The answer ended."""
        self.followed = None


def score(offer: Offer, start: int, tokens: Sequence[int], arm: Arm) -> int:
    """Counts what was right from `start` on. Where all that came is, and the offer goes on: how many in all, else 0."""
    offered = offer.tokens[start : min(start + len(tokens), MAX_DRAFT)]
    right = 0
    for ours, came in zip(offered, tokens, strict=False):
        if ours != came:
            break
        right += 1
    arm.acceptance.observe(offer.bucket, start, right, min(right + 1, len(offered)))
    return start + right if right == len(tokens) and start + right < min(len(offer.tokens), MAX_DRAFT) else 0
