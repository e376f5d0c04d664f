"""A drafter for one answer, in the place of the usual one, which goes on afterwards as if it had been there."""

from __future__ import annotations

from localspec.engine.drafters.none import empty
from localspec.engine.protocols import Draft, Drafter
from localspec.engine.session import Session


class Relief:
    """`resting` forgets what the session forgets, and reads nothing meanwhile."""

    def __init__(self, drafter: Drafter, resting: Drafter) -> None:
        self.drafter = drafter
        self.resting = resting

    def prefill(self, session: Session) -> None:
        self.drafter.prefill(session)

    def draft(self, session: Session, k: int) -> Draft:
        return self.drafter.draft(session, k) if k > 0 else empty(session)

    def crop(self, length: int) -> None:
        self.drafter.crop(length)
        self.resting.crop(length)
