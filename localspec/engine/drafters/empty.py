"""The drafter that proposes nothing: plain decoding is the same loop with this one."""

from __future__ import annotations

import torch

from localspec.engine.contract import Draft
from localspec.engine.session import Session

EMPTY = Draft(torch.empty(0, dtype=torch.long))


class NoDrafter:
    """Proposes nothing."""

    def prefill(self, session: Session) -> None:
        pass

    def draft(self, session: Session, k: int) -> Draft:  # noqa: ARG002
        return EMPTY

    def crop(self, length: int) -> None:
        pass
