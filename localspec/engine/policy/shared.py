"""What the policies of several requests share: costs, the rate of all, what may be explored, and which are
present."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.requests import PROBE_EVERY
from localspec.engine.policy.agreement import Agreed
from localspec.engine.policy.costs import Costs
from localspec.engine.policy.exploration import Explorer
from localspec.engine.policy.probes import Probes
from localspec.engine.policy.shares import Others, Steps
from localspec.engine.protocols import Forward

RECENT = 0.2  # the weight of the newest round in what a request gains by one


class Rate:
    """Tokens per second, of the last twenty steps or so, as expected of the best choice in each."""

    DECAY = 0.95

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.tokens = self.seconds = 0.0

    def add(self, tokens: float, seconds: float) -> None:
        self.tokens = self.DECAY * self.tokens + tokens
        self.seconds = self.DECAY * self.seconds + seconds

    @property
    def value(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


class Member:
    """One request's, among those of a target."""

    def __init__(self) -> None:
        self.step = 0  # the last one that it has reported on
        self.rows = 1  # of its next forward, where it has chosen
        self.is_drafting = False  # by forwards of its own
        self.tokens = 1.0  # that these bring, as expected
        self.usual = 1.0  # tokens a round, of late
        self.rises: Sequence[float] = ()  # what each token of a draft by forwards brings, as expected
        self.gains: Sequence[float] = ()  # what each further row would have brought in its last round

    def promise(self, tokens: float) -> None:
        self.tokens = tokens
        self.usual += RECENT * (tokens - self.usual)


class Shared:
    """The record of all requests to a target."""

    def __init__(self, probe_every: int = PROBE_EVERY) -> None:
        self.costs = Costs()
        self.rate = Rate()
        self.explorer = Explorer(self.costs)
        self.members: list[Member] = []
        self.present: list[Member] = []  # those that had rows in the last step
        self.steps = Steps()
        self.agreed: Agreed | None = None  # of those whose drafts cost forwards
        self.probes = Probes(probe_every)

    def is_first(self, member: Member, last: Forward | None) -> bool:
        """Takes a report on the last forward; True if no other had reported on it."""
        if last is None:
            return True
        before = self.steps.count
        if first := self.steps.is_new(last):
            present = [member for member in self.members if member.step == before]
            if present and self.present and len(present) != len(self.present):
                self.rate.forget()  # more or fewer requests have another rate
            self.present = present or self.present
        member.step = self.steps.count
        return first

    def rises(self, own: Member) -> list[Sequence[float]]:
        """What the drafts of those who choose later bring, as far as they are by forwards."""
        step = self.steps.count
        return [member.rises for member in self.present if member.step == step - 1 and member is not own]

    def others(self, own: Member, asked: int) -> Others:
        """What one knows of the others, who have `asked` for so many rows."""
        step = self.steps.count
        chosen = [member for member in self.members if member.step == step and member is not own]
        waiting = [member for member in self.present if member.step == step - 1 and member is not own]
        known = sum([member.rows for member in chosen]) + len(waiting)
        strangers = max(asked - known, 0)  # a prompt's, or those of requests that draft no more than they were asked to
        tokens = sum([member.tokens for member in chosen]) + len(waiting)
        usual = [member.usual for member in (*chosen, *waiting)] + [1.0] * (strangers > 0)
        drafting = sum([member.is_drafting for member in (*chosen, *waiting)])
        gains = [gain for member in waiting for gain in member.gains]
        return Others(known + strangers, len(chosen) + len(waiting) + strangers, tokens, min(usual), drafting, gains)
