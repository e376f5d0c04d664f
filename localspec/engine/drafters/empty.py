"""The drafter that proposes nothing: plain decoding is the same loop with this drafter."""

from __future__ import annotations

from localspec.engine.protocols import Draft
from localspec.engine.session import Session


def empty(session: Session) -> Draft:
    """A draft of no tokens, on the session's device."""
    return Draft(session.nothing)


class NoDrafter:
    """Proposes nothing."""

    def prefill(self, session: Session) -> None:
        pass

    def draft(self, session: Session, k: int) -> Draft:  # noqa: ARG002
        return empty(session)

    def crop(self, length: int) -> None:
        pass
