"""A small model with the same tokenizer drafts, from its own cache, on any device. It reads the prompt once.

When it has fallen behind (drafting was off, or its whole draft was accepted), the first forward of the next draft
catches up and is charged to that draft.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from localspec.engine.drafters.early_exit import stack
from localspec.engine.drafters.empty import empty
from localspec.engine.limits import PREFILL_CHUNK
from localspec.engine.protocols import Choice, Draft, Offer, Resident
from localspec.engine.sampling import finite
from localspec.engine.session import Session


class ModelDrafter:
    """Drafts with a decoder of its own. `vocab`: the target's vocabulary size; logits are padded to it."""

    kind = "model"

    def __init__(self, decoder: Resident, vocab: int) -> None:
        self.decoder = decoder
        self.vocab = vocab

    def prefill(self, session: Session) -> None:
        """Reads all but the pending token, in chunks; nothing when the prompt is longer than its context."""
        if len(session.tokens) > self.decoder.context:
            return
        unread = session.tokens[self.decoder.length : -1]
        for start in range(0, len(unread), PREFILL_CHUNK):
            session.check_cancel()
            finite(self.read(torch.tensor(unread[start : start + PREFILL_CHUNK])))

    def offers(self, session: Session, most: int) -> Sequence[Offer]:
        most = min(most, self.decoder.context - len(session.tokens))
        return (Offer(self.kind, most),) if most > 0 else ()

    def draft(self, session: Session, choice: Choice) -> Draft:
        drafted, probs, sums = session.nothing, [], []
        k = min(choice.k, self.decoder.context - len(session.tokens))
        if k <= 0:
            return empty(session)
        if len(session.tokens) - self.decoder.length > PREFILL_CHUNK:
            self.prefill(session)
        token = torch.tensor(session.tokens[self.decoder.length :])  # the tokens it has not read, and the pending one
        for _ in range(k):
            session.check_cancel()
            logits = self.read(token)
            sums.append(logits.sum())
            token, q = session.sampler.propose(self.padded(logits), session, drafted)
            drafted = torch.cat((drafted.to(token.device), token))
            probs.append(q)
            if session.ends_with(token):
                break
        finite(torch.stack(sums))  # once: on a GPU every read waits for it
        return Draft(drafted, stack(probs), drafters=(self.kind,) * len(probs)).brought_to(session.device)

    def crop(self, length: int) -> None:
        self.decoder.crop(length)

    def read(self, ids: Tensor) -> Tensor:
        """Logits [1, vocab] after ids [rows]. Ids beyond its vocabulary are read as its last id, which costs
        acceptance and nothing else."""
        return self.decoder.forward(ids.clamp_max(self.decoder.arch.vocab_size - 1), last_only=True)

    def padded(self, logits: Tensor) -> Tensor:
        """Logits padded to the target's width; ids that only one of the two has are never drafted."""
        missing = self.vocab - logits.shape[-1]
        return functional.pad(logits, (0, missing), value=-torch.inf) if missing else logits
