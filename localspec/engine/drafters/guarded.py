"""Catches a drafter's faults: the session goes on without drafts, and the fault is kept for a Notice."""

from __future__ import annotations

from localspec.core.errors import Cancelled
from localspec.engine.drafters.empty import NoDrafter, empty
from localspec.engine.protocols import Draft, Drafter
from localspec.engine.session import Session


class Guarded:
    """Delegates to `drafter` until that raises; then drafts nothing and lets it go."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.fault: Exception | None = None

    def prefill(self, session: Session) -> None:
        try:
            self.drafter.prefill(session)
        except Cancelled:
            raise
        except Exception as fault:
            self.fail(fault)

    def draft(self, session: Session, k: int) -> Draft:
        if k <= 0:
            return empty(session)
        try:
            return self.drafter.draft(session, k)
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
        self.fault, self.drafter = fault.with_traceback(None), NoDrafter()
