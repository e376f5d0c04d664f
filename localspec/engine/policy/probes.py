"""Probes: rounds without a draft, inserted by schedule, from which a speed-up is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, repeat

from localspec.core.requests import PROBE_EVERY
from localspec.engine.policy.shares import ALONE, Steps
from localspec.engine.protocols import PLAIN, Choice, Company, Forward, Offer, Policy, Round

FIRST_PROBES = (2, 5, 9)
PROBE_GAPS = (*[1] * 7, 2, 4)  # times the gap: soon ten probes, of which a speed-up is made; the last one repeats


class Probes:
    """The schedule: rounds 2, 5 and 9 draft nothing, then ever fewer do. Requests that share it draft nothing in the
    same steps: beside drafts of others, a round without one would not show what drafts cost all of them."""

    def __init__(self, every: int = PROBE_EVERY) -> None:
        self.steps = Steps()
        self.numbers = probe_rounds(every)
        self.next = next(self.numbers)
        self.is_due = False

    def passed(self, last: Forward | None) -> None:
        """A round has passed, of a request that had rows in the last forward."""
        if self.steps.is_new(last):
            if self.is_due:
                self.next = next(self.numbers)
            self.is_due = self.steps.count + 1 == self.next


class Probed:
    """Wraps a policy and adds probes."""

    def __init__(self, policy: Policy, probes: Probes | None = None, company: Company = ALONE) -> None:
        self.policy, self.company = policy, company
        self.probes = probes or Probes()

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        return PLAIN if self.probes.is_due else self.policy.choose(most, offers)

    def observe(self, done: Round) -> None:
        self.probes.passed(self.company.last)
        self.policy.observe(done)


def probe_rounds(every: int) -> Iterator[int]:
    """2, 5, 9, then gaps of `every` until there are ten, then one of twice and from there on four times as many."""
    yield from FIRST_PROBES
    gaps = (every * times for times in chain(PROBE_GAPS, repeat(PROBE_GAPS[-1])))
    yield from accumulate(chain([FIRST_PROBES[-1] + next(gaps)], gaps))
