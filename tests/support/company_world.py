"""A clockless world of several requests on one target: their rows are computed as one forward."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from localspec.core.requests import MAX_DRAFT
from localspec.engine.protocols import Choice, Forward, Offer, Policy, Round

Cost = Callable[[int], float]


class Together:
    """The company, as a Batch is: who has chosen has rows, others one each; the one that chooses is not counted."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.choosing = -1
        self.strangers = 0  # rows of a prompt
        self.is_reading = False
        self.last: Forward | None = None

    @property
    def others(self) -> int:
        return sum(rows for index, rows in self.rows.items() if index != self.choosing) + self.strangers


@dataclass
class Request:
    """Its drafter is right at each position with this chance. `free`: as a look-up's, which cost nothing to propose."""

    policy: Policy
    agreement: float
    coins: random.Random
    free: bool = True
    begins: int = 0  # the step
    wants: float = float("inf")  # tokens
    right: list[bool] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0  # while it was there
    steps: list[tuple[int, int]] = field(default_factory=list)  # drafted, committed

    def offers(self) -> tuple[Offer, ...]:
        while len(self.right) < self.tokens + MAX_DRAFT:
            self.right.append(self.coins.random() < self.agreement)
        if not self.free:
            return (Offer("early-exit", MAX_DRAFT),)
        places = range(self.tokens, self.tokens + MAX_DRAFT)
        return (Offer("lookup", MAX_DRAFT, tuple(place if self.right[place] else -1 for place in places), 3),)

    def accepted(self, choice: Choice) -> int:
        right = 0
        while right < choice.k and self.right[self.tokens + right]:
            right += 1
        return right


@dataclass
class World:
    """`forward`: seconds by rows; `exit`: of a forward that drafts a token for each that waits for one."""

    forward: Cost
    exit: float = 0.0
    noise: Cost = lambda seconds: seconds
    company: Together = field(default_factory=Together)
    seconds: float = 0.0

    def run(self, requests: Sequence[Request], steps: int, until: Callable[[int], None] | None = None) -> None:
        reports: dict[int, Round] = {}
        for step in range(steps):
            if until is not None:
                until(step)
            present = [
                index
                for index, one in enumerate(requests)
                if (one.begins <= step and one.tokens < one.wants) or index in reports
            ]
            self.company.rows = dict.fromkeys(present, 1)
            choices = {}
            for index in present:
                one = requests[index]
                if index in reports:
                    one.policy.observe(reports.pop(index))
                if one.tokens >= one.wants:
                    del self.company.rows[index]
                    continue
                self.company.choosing = index
                most = int(min(MAX_DRAFT, one.wants - one.tokens - 1))
                one.offers()
                choices[index] = choice = one.policy.choose(most, one.offers)
                waits = choice.k > 0 and not one.free  # for its draft: its rows are not known yet
                self.company.rows[index] = 1 if waits else 1 + choice.k
            self.company.choosing = -1
            if choices:
                reports = self.computed(requests, choices)

    def computed(self, requests: Sequence[Request], choices: dict[int, Choice]) -> dict[int, Round]:
        """One step: all drafts, and the forward of all rows."""
        rows = sum(1 + choice.k for choice in choices.values()) + self.company.strangers
        took = self.noise(self.forward(rows))
        own = {index: 0.0 if requests[index].free else self.exit * choice.k for index, choice in choices.items()}
        drafting = max(own.values())
        self.company.last = Forward(rows, took, is_mixed=self.company.strangers > 0)
        self.seconds += drafting + took
        reports = {}
        for index, choice in choices.items():
            one, accepted = requests[index], requests[index].accepted(choice)
            kinds = (choice.offer.drafter,) * choice.k if choice.offer else ()
            proposed = tuple(place if one.right[place] else -1 for place in range(one.tokens, one.tokens + choice.k))
            tokens = tuple(range(one.tokens, one.tokens + accepted + 1))
            one.tokens += accepted + 1
            one.seconds += drafting + took
            one.steps.append((choice.k, accepted + 1))
            reports[index] = Round(
                tokens,
                proposed,
                accepted,
                own[index],
                drafting - own[index] + took,
                ended="length" if one.tokens >= one.wants else None,
                drafters=kinds,
                choice=choice,
            )
        return reports
