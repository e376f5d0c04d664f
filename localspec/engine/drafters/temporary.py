"""Replaces the usual drafter for one answer; the usual one resumes afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.engine.drafters.empty import empty
from localspec.engine.protocols import Choice, Draft, Drafter, Offer
from localspec.engine.session import Session


class TemporaryDrafter:
    """Drafts with `drafter`; `suspended` follows every crop, and reads nothing meanwhile."""

    def __init__(self, drafter: Drafter, suspended: Drafter) -> None:
        self.drafter = drafter
        self.suspended = suspended

    def prefill(self, session: Session) -> None:
        self.drafter.prefill(session)

    def offers(self, session: Session, most: int) -> Sequence[Offer]:
        return self.drafter.offers(session, most)

    def draft(self, session: Session, choice: Choice) -> Draft:
        return self.drafter.draft(session, choice) if choice.k > 0 else empty(session)

    def crop(self, length: int) -> None:
        self.drafter.crop(length)
        self.suspended.crop(length)
