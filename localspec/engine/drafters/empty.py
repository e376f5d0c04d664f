"""The drafter that proposes nothing: plain decoding is the same loop with this drafter."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.engine.protocols import Choice, Draft, Offer
from localspec.engine.session import Session


def empty(session: Session) -> Draft:
    """A draft of no tokens, on the session's device."""
    return Draft(session.nothing)


class NoDrafter:
    """Proposes nothing."""

    def prefill(self, session: Session) -> None:
        pass

    def offers(self, session: Session, most: int) -> Sequence[Offer]:  # noqa: ARG002
        return ()

    def draft(self, session: Session, choice: Choice) -> Draft:  # noqa: ARG002
        return empty(session)

    def crop(self, length: int) -> None:
        pass
