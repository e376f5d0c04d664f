"""Whether drafters are asked for offers: a look-up's scan costs time, wasted where nothing it offers pays."""

from __future__ import annotations

from localspec.engine.policy.costs import Times

WASTE_SHARE = 0.004  # of the time may be spent on asking for nothing
RECENT = 0.1  # the weight of the newest answer
SAVED_UP = 2  # askings: the most that is saved for later


class AskingRate:
    """Asks every round while that saves more than it costs; else as often as a fixed share of the time allows."""

    def __init__(self) -> None:
        self.times = Times()  # of rounds that asked and did not draft, up to the forward
        self.cost = 0.0
        self.saves = 0.0  # seconds, of late
        self.allowance = 0.0  # seconds

    def due(self) -> bool:
        return self.saves >= self.cost or self.allowance >= self.cost

    def answered(self, saved: float) -> None:
        """Asked; what was chosen saves so many seconds beside plain decoding."""
        self.saves += RECENT * (saved - self.saves)
        if saved <= 0.0:
            self.allowance -= self.cost

    def passed(self, seconds: float) -> None:
        """A round has passed."""
        self.allowance = min(self.allowance + WASTE_SHARE * seconds, SAVED_UP * self.cost)

    def took(self, seconds: float) -> None:
        """Takes the time of a round that asked and did not draft, up to its forward."""
        self.times.add(seconds)
        self.cost = self.times.usual
