"""The policy of a session: off, auto or on, switched between any two rounds; and those of several on one target."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.core.events import DraftLength, Mode
from localspec.core.requests import PROBE_EVERY
from localspec.engine.policy.auto import Auto
from localspec.engine.policy.named import Constant, fixed
from localspec.engine.policy.probes import Probed
from localspec.engine.policy.shared import Shared
from localspec.engine.policy.shares import ALONE
from localspec.engine.protocols import Choice, Company, Offer, Policy, Round


class SteerablePolicy:
    """Off: no drafts. Auto: `Auto` decides. On: every round but the probes drafts `k` tokens. It can be steered at any
    time, from any thread; measurements and the schedule of the probes stay."""

    def __init__(
        self,
        mode: Mode,
        k: DraftLength,
        probe_every: int = PROBE_EVERY,
        *,
        shared: Shared | None = None,
        company: Company = ALONE,
    ) -> None:
        shared = shared or Shared(probe_every)
        self.auto = Auto(shared=shared, company=company)
        self.probed = Probed(self.auto, shared.probes, company)
        self.steer(mode, k)

    def steer(self, mode: Mode, k: DraftLength) -> None:
        """Changes mode and length from the next round on."""
        self.mode, self.auto.least = mode, int(mode == "on")
        if mode == "off":
            self.probed.policy = Constant(0)
        else:
            self.probed.policy = self.auto if mode == "auto" or k == "auto" else fixed(k)

    def for_one_answer(self, speculate: bool) -> Policy:
        """A policy for one answer, without probes: it drafts even where the mode is off, or never."""
        if not speculate:
            return Constant(0)
        return self.auto if self.mode == "off" else self.probed.policy

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        return self.probed.choose(most, offers)

    def observe(self, done: Round) -> None:
        self.probed.observe(done)


class SharedPolicy:
    """Makes the policies of several slots on one target, which share their costs and their forwards' rows."""

    def __init__(self, mode: Mode, k: DraftLength, probe_every: int = PROBE_EVERY) -> None:
        self.mode, self.k = mode, k
        self.shared = Shared(probe_every)

    def slot(self, company: Company) -> SteerablePolicy:
        """The policy of one slot, whose rows are computed with those of `company`."""
        return SteerablePolicy(self.mode, self.k, shared=self.shared, company=company)
