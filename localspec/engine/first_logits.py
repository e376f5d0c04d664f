"""A sampler that checks whether the first logits of an answer are all equal.

They are equal where weights are all zero, or overflow where a norm divides. Wraps another sampler, which chooses the
tokens.
"""

from __future__ import annotations

from torch import Tensor

from localspec.engine.protocols import Draft, Sampler
from localspec.engine.session import Session


class FirstLogits:
    """Wraps a sampler. `is_flat`: every token had the same logit; None before the first round."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.is_flat: bool | None = None

    @property
    def takes_likeliest(self) -> bool:
        return self.sampler.takes_likeliest

    def propose(self, logits: Tensor, session: Session, drafted: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.sampler.propose(logits, session, drafted)

    def accept(self, logits: Tensor, draft: Draft, session: Session) -> tuple[int, int]:
        if self.is_flat is None:
            self.is_flat = bool((logits[0] == logits[0, 0]).all())
        return self.sampler.accept(logits, draft, session)
