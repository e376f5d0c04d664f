"""Probes: rounds without a draft, inserted by schedule, from which a speed-up is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, repeat

from localspec.core.requests import PROBE_EVERY
from localspec.engine.protocols import PLAIN, Choice, Offer, Policy, Round

FIRST_PROBES = (2, 5, 9)
PROBE_GAPS = (*[1] * 7, 2, 4)  # times the gap: soon ten probes, of which a speed-up is made; the last one repeats


class Probed:
    """Wraps a policy and adds probes: rounds 2, 5 and 9 of a session draft nothing, then ever fewer do."""

    def __init__(self, policy: Policy, every: int = PROBE_EVERY) -> None:
        self.policy = policy
        self.rounds = 0
        self.probes = probe_rounds(every)
        self.next_probe = next(self.probes)

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        if self.rounds + 1 == self.next_probe:
            return PLAIN
        return self.policy.choose(most, offers)

    def observe(self, done: Round) -> None:
        self.rounds += 1
        if self.rounds == self.next_probe:
            self.next_probe = next(self.probes)
        self.policy.observe(done)


def probe_rounds(every: int) -> Iterator[int]:
    """2, 5, 9, then gaps of `every` until there are ten, then one of twice and from there on four times as many."""
    yield from FIRST_PROBES
    gaps = (every * times for times in chain(PROBE_GAPS, repeat(PROBE_GAPS[-1])))
    yield from accumulate(chain([FIRST_PROBES[-1] + next(gaps)], gaps))
