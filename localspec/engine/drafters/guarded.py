"""Catches a drafter's faults: the session goes on with what is left to draft, and the fault is kept for a Notice."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.errors import Cancelled, EngineError
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
            found = self.drafter.offers(session, most)
            for offer in found:
                check_ids(offer.tokens, session)
            return found
        except Cancelled:
            raise
        except Exception as fault:
            self.fail(fault)
            return ()

    def draft(self, session: Session, choice: Choice) -> Draft:
        if choice.k <= 0:
            return empty(session)
        try:
            draft = self.drafter.draft(session, choice)
            check(draft, session, choice)
            return draft
        except Cancelled:
            raise
        except Exception as fault:
            self.fail(fault)
            return empty(session)

    def crop(self, length: int) -> None:
        try:
            self.drafter.crop(length)
        except Exception as fault:
            self.fail(fault)
            self.drafter.crop(length)

    def fail(self, fault: Exception) -> None:
        """Keeps the fault without its tracebacks, which would hold the drafter and its tensors."""
        fault.__cause__ = fault.__context__ = None
        self.fault, self.drafter, self.spare = fault.with_traceback(None), self.spare, NoDrafter()


def check(draft: Draft, session: Session, choice: Choice) -> None:
    """Refuses a draft that would change the text or end the answer: more tokens than asked for, ids that the target
    does not have, invalid probabilities. On a GPU, where each look waits for it, the length alone."""
    if len(draft) > choice.most:
        raise EngineError(f"It drafted {len(draft)} tokens and was asked for {choice.most}")
    if not session.can_look or not len(draft):
        return
    check_ids(draft.tokens.tolist(), session)
    if draft.probs is not None:
        index = draft.tokens.to(draft.probs.device).unsqueeze(-1)
        if not bool((draft.probs.gather(-1, index) > 0).all()):  # so is NaN
            raise EngineError("It drafted tokens without a probability")


def check_ids(tokens: Sequence[int], session: Session) -> None:
    if tokens and not 0 <= min(tokens) <= max(tokens) < session.target.arch.vocab_size:
        raise EngineError("It drafted an id that the model does not have")
