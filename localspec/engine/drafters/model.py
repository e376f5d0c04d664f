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
from localspec.engine.lengths import Shorten, usual
from localspec.engine.limits import PREFILL_CHUNK
from localspec.engine.protocols import Choice, Draft, Offer, Resident, can_shorten
from localspec.engine.sampling import finite
from localspec.engine.session import Session
from localspec.engine.shortlist import propose


class ModelDrafter:
    """Drafts with a decoder of its own, its head shortened where it is long. `vocab`: the target's vocabulary size;
    logits are padded to it."""

    kind = "model"

    def __init__(self, decoder: Resident, vocab: int, *, shorten: Shorten = usual) -> None:
        self.decoder = decoder
        self.vocab = vocab
        words = min(vocab, decoder.arch.vocab_size)  # those that both have
        self.shortlist = decoder.shortlist(words, shorten) if can_shorten(decoder) else None

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
        words = self.shortlist if self.shortlist and self.shortlist.follow(session) else None
        for _ in range(k):
            session.check_cancel()
            logits = self.read(token, short=words is not None)
            sums.append(logits.sum())
            wide = logits if words else self.padded(logits)
            token, q = propose(words, wide, session, drafted, self.vocab)
            drafted = torch.cat((drafted.to(token.device), token))
            probs.append(q)
            if session.ends_with(token):
                break
        finite(torch.stack(sums))  # once: on a GPU every read waits for it
        return Draft(drafted, stack(probs), drafters=(self.kind,) * len(probs)).brought_to(session.device)

    def crop(self, length: int) -> None:
        self.decoder.crop(length)
        if self.shortlist:
            self.shortlist.crop(length)

    def read(self, ids: Tensor, *, short: bool = False) -> Tensor:
        """Logits [1, vocab] after ids [rows], or [1, total] of the shortlist. Ids beyond its vocabulary are read as its
        last id, which costs acceptance and nothing else."""
        ids = ids.clamp_max(self.decoder.arch.vocab_size - 1)
        if short and can_shorten(self.decoder):
            return self.decoder.forward(ids, last_only=True, short=True)
        return self.decoder.forward(ids, last_only=True)

    def padded(self, logits: Tensor) -> Tensor:
        """Logits padded to the target's width; ids that only one of the two has are never drafted."""
        missing = self.vocab - logits.shape[-1]
        return functional.pad(logits, (0, missing), value=-torch.inf) if missing else logits
