"""Policies that measure nothing: a constant length, and the heuristic one. Both draft the first offer, a look-up's only
where its match is long or nothing else is offered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from localspec.core.requests import MAX_DRAFT
from localspec.engine.protocols import PLAIN, Choice, Offer, Policy, Round

LONG_MATCH = 9  # the first bucket of a look-up with a match of five tokens or more, as SAM-Decoding has it


class Constant:
    """Drafts k tokens in every round."""

    def __init__(self, k: int) -> None:
        self.k = k

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        return first(self.k, most, offers)

    def observe(self, done: Round) -> None:
        pass


def first(k: int, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
    """The first k tokens of the first offer; a look-up goes before another drafter only where its match is long."""
    asked = offers() if min(k, most) > 0 else ()
    for offer in asked:
        if not offer.tokens or offer.bucket >= LONG_MATCH or len(asked) == 1:
            return Choice(min(k, most, offer.most), offer)
    return PLAIN


class Heuristic:
    """Drafts two more after a draft accepted whole, one less otherwise: transformers' assisted generation's rule."""

    def __init__(self, start: int = 5) -> None:
        self.k = start

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        return first(self.k, most, offers)

    def observe(self, done: Round) -> None:
        if done.drafted:
            whole = done.accepted == done.drafted
            self.k = min(self.k + 2, MAX_DRAFT) if whole else max(self.k - 1, 1)


def fixed(k: int | Literal["heuristic"]) -> Policy:
    return Heuristic() if k == "heuristic" else Constant(k)
