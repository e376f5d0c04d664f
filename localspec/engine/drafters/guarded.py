"""Catches a drafter's faults: the session goes on with what is left to draft, and the fault is kept for a Notice."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.errors import Cancelled
from localspec.engine.drafters.empty import NoDrafter, empty
from localspec.engine.protocols import Choice, Draft, Drafter, Offer
from localspec.engine.session import Session


class Guarded:
    """Delegates to `drafter` until that raises; then lets it go, and drafts with `spare`, in step with the same
    session, until that raises, too."""

    def __init__(self, drafter: Drafter, spare: Drafter | None = None) -> None:
        self.drafter = drafter
        self.spare = spare or NoDrafter()
        self.fault: Exception | None = None

    def prefill(self, session: Session) -> None:
        try:
            self.drafter.prefill(session)
        except Cancelled:
            raise
        except Exception as fault:
            self.fail(fault)

    def offers(self, session: Session, most: int) -> Sequence[Offer]:
        try:
            return self.drafter.offers(session, most)
        except Cancelled:
            raise
        except Exception as fault:
            self.fail(fault)
            return ()

    def draft(self, session: Session, choice: Choice) -> Draft:
        if choice.k <= 0:
            return empty(session)
        try:
            return self.drafter.draft(session, choice)
        except Cancelled:
            raise
        except Exception as fault:
            self.fail(fault)
            return empty(session)

    def crop(self, length: int) -> None:
        self.drafter.crop(length)

    def fail(self, fault: Exception) -> None:
        """Keeps the fault without its tracebacks, which would hold the drafter and its tensors."""
        fault.__cause__ = fault.__context__ = None
        self.fault, self.drafter, self.spare = fault.with_traceback(None), self.spare, NoDrafter()
