"""A drafter that may fail without harm: after a fault the session goes on plain, and the fault is kept to be told."""

from __future__ import annotations

from localspec.engine.contract import Draft, Drafter
from localspec.engine.drafters.empty import empty
from localspec.engine.session import Session
from localspec.errors import Cancelled


class Guarded:
    """Passes everything on until the drafter raises; from then on proposes nothing."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.fault: Exception | None = None

    def prefill(self, session: Session) -> None:
        if self.fault is None:
            try:
                self.drafter.prefill(session)
            except Cancelled:
                raise
            except Exception as fault:
                self.fault = fault

    def draft(self, session: Session, k: int) -> Draft:
        if self.fault is not None or k <= 0:
            return empty(session)
        try:
            return self.drafter.draft(session, k)
        except Cancelled:
            raise
        except Exception as fault:
            self.fault = fault
            return empty(session)

    def crop(self, length: int) -> None:
        self.drafter.crop(length)
