"""A small model with another tokenizer drafts: it writes in its own tokens, and a Translator makes them the target's.

Its drafts are greedy (one-hot), so they are exact under every sampler, whatever the translation. Knows ids only; what
they mean is the Translator's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from localspec.engine.drafters.empty import empty
from localspec.engine.limits import PREFILL_CHUNK
from localspec.engine.protocols import Choice, Draft, Offer, Resident, Translator
from localspec.engine.sampling import finite
from localspec.engine.session import Session, common_prefix_length


class TranslatedDrafter:
    """Drafts with a decoder of its own, which holds the conversation in its own tokens."""

    kind = "model"

    def __init__(self, decoder: Resident, translator: Translator) -> None:
        self.decoder = decoder
        self.translator = translator
        self.read: list[int] = []  # the ids in its cache

    def prefill(self, session: Session) -> None:
        """Reads the conversation but for its last id; nothing when it is longer than the context."""
        ids = self.translator.follow(session.tokens)
        if 0 < len(ids) <= self.decoder.context:
            self.catch_up(session, ids, leaving=1)

    def offers(self, session: Session, most: int) -> Sequence[Offer]:
        fits = len(self.read) < self.decoder.context
        return (Offer(self.kind, most),) if fits and self.translator.is_able(session.tokens) else ()

    def draft(self, session: Session, choice: Choice) -> Draft:
        ids = self.translator.follow(session.tokens)
        steps = min(self.translator.steps(choice.k), self.decoder.context - len(ids))
        if choice.k <= 0 or not ids or steps <= 0:
            return empty(session)
        self.catch_up(session, ids, leaving=PREFILL_CHUNK)
        drafted = self.write(session, ids[len(self.read) :], steps)
        found = self.translator.translate(session.tokens, drafted, choice.k)
        tokens = torch.tensor(found, dtype=torch.long, device=session.device)
        return Draft(tokens, drafters=(self.kind,) * len(found))

    def crop(self, length: int) -> None:
        """Rolls the target's tokens back; its own cache follows at the next draft, when it is known how far."""
        self.translator.crop(length)

    def write(self, session: Session, unread: Sequence[int], steps: int) -> list[int]:
        """Its most likely tokens after the unread ids, to the end of its turn at most."""
        token, drafted, sums = torch.tensor(unread), list[Tensor](), list[Tensor]()
        for _ in range(steps):
            session.check_cancel()
            logits = self.forward(token)
            sums.append(logits.sum())
            token = logits.argmax(-1)
            drafted.append(token)
            if session.can_look and int(token) in self.translator.end_ids:
                break
        finite(torch.stack(sums))
        found: list[int] = torch.cat(drafted).tolist()
        self.read += [*unread, *found[:-1]]
        return found[: next((at for at, id in enumerate(found, 1) if id in self.translator.end_ids), len(found))]

    def catch_up(self, session: Session, ids: Sequence[int], *, leaving: int) -> None:
        """Keeps what is read of these ids, and reads the others in chunks, until at most `leaving` are unread."""
        kept = min(common_prefix_length(self.read, ids), len(ids) - 1)
        self.decoder.crop(kept)
        del self.read[kept:]
        while len(ids) - len(self.read) > leaving:
            session.check_cancel()
            chunk = ids[len(self.read) :][: min(PREFILL_CHUNK, len(ids) - len(self.read) - 1)]
            finite(self.forward(torch.tensor(chunk)))
            self.read += chunk

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [1, vocab] after ids [rows]. Ids beyond its vocabulary are read as its last id."""
        return self.decoder.forward(ids.clamp_max(self.decoder.arch.vocab_size - 1), last_only=True)
